// autotune/plan/json_reader.cpp -- see json_reader.h.
// SPDX-License-Identifier: Apache-2.0
#include "autotune/plan/json_reader.h"

#include <zlib.h>

#include <memory>

namespace seqtile::plan {

std::string one_line(std::string text) {
  constexpr size_t kMost = 300;
  if (text.size() > kMost) text = text.substr(0, kMost) + "...";
  std::ranges::replace_if(
      text, [](unsigned char c) { return c < ' ' || c == 0x7f; }, '?');
  return text;
}

std::string excerpt(const Json& json) {
  constexpr size_t kMost = 40;
  return json.is_structured() ? std::string("an ") + json.type_name() : json.dump().substr(0, kMost);
}

std::string read_text(const std::string& path) {
  const std::unique_ptr<gzFile_s, int (*)(gzFile)> file(gzopen(path.c_str(), "rb"), gzclose);
  if (!file) throw Error(ErrorCode::io, path + ": cannot be opened");
  constexpr size_t kMostBytes = size_t{1} << 30;
  std::string text;
  char buffer[1 << 16];
  int count;
  while ((count = gzread(file.get(), buffer, sizeof buffer)) > 0) {
    text.append(buffer, static_cast<size_t>(count));
    if (text.size() > kMostBytes) throw Error(ErrorCode::invalid_argument, path + ": more than 1 GiB");
  }
  int code = Z_OK;
  gzerror(file.get(), &code);
  if (count < 0 || (code != Z_OK && code != Z_STREAM_END))
    throw Error(ErrorCode::invalid_argument, path + ": is cut off, or compressed data is damaged");
  return text;
}

Json parse_json(const std::string& text, const std::string& name) {
  try {
    return Json::parse(text);
  } catch (const Json::exception& error) {
    throw Error(ErrorCode::invalid_argument, fmt::format("{}: no JSON: {}", name, one_line(error.what())));
  }
}

}  // namespace seqtile::plan
