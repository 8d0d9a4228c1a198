// planner/graph/json_reader.cpp -- see json_reader.h.
// SPDX-License-Identifier: Apache-2.0
#include "planner/graph/json_reader.h"

#include <zlib.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <memory>

namespace seqtile::planner {

namespace {

[[noreturn]] void refuse_file(const FileName& file, const std::string& why) {
  throw Error(ErrorCode::invalid_argument,
              one_line(fmt::format("{} {}: {}; {}", file.given_as, shortened(file.path), why, file.advice)));
}

/// Refuses missing files and folders; zlib opens folders. Pipes and devices can be read.
void check_can_read(const FileName& file) {
  std::error_code error;
  const auto type = std::filesystem::status(file.path, error).type();
  if (type == std::filesystem::file_type::not_found) refuse_file(file, "there is no such file");
  if (type == std::filesystem::file_type::directory) refuse_file(file, "is a folder, not a file");
}

}  // namespace

std::string read_text(const FileName& name) {
  check_can_read(name);
  const std::unique_ptr<gzFile_s, int (*)(gzFile)> file(gzopen(name.path.c_str(), "rb"), gzclose);
  if (!file) refuse_file(name, fmt::format("cannot be opened: {}", std::strerror(errno)));
  constexpr size_t kMostBytes = size_t{1} << 30;
  std::string text;
  char buffer[1 << 16];
  int count;
  while ((count = gzread(file.get(), buffer, sizeof buffer)) > 0) {
    text.append(buffer, static_cast<size_t>(count));
    if (text.size() > kMostBytes) refuse_file(name, "more than 1 GiB");
  }
  int code = Z_OK;
  gzerror(file.get(), &code);
  if (code == Z_ERRNO) refuse_file(name, fmt::format("cannot be read: {}", std::strerror(errno)));
  if (count < 0 || (code != Z_OK && code != Z_STREAM_END))
    refuse_file(name, "is cut off, or compressed data is damaged");
  return text;
}

Json parse_json(const std::string& text, const std::string& name) {
  autotune::JsonText json = autotune::read_json(text, name, false);
  if (!json.repeated.empty())
    throw Error(ErrorCode::invalid_argument, one_line(fmt::format("{}: {}", shortened(name), json.repeated.front())));
  return std::move(json.value);
}

}  // namespace seqtile::planner
