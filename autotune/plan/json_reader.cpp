// autotune/plan/json_reader.cpp -- see json_reader.h.
// SPDX-License-Identifier: Apache-2.0
#include "autotune/plan/json_reader.h"

#include <zlib.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <memory>

#include "cache/text.h"

namespace seqtile::plan {

std::string shortened(const std::string& value, size_t most) {
  if (value.size() <= most) return value;
  return value.substr(0, most / 2) + "..." + value.substr(value.size() - most / 2);
}

std::string one_line(const std::string& text) {
  constexpr size_t kMost = 450;
  const std::string line = shortened(text, kMost);
  return cache::one_line(line, line.size());
}

std::string excerpt(const Json& json) {
  constexpr size_t kMost = 40;
  return json.is_structured() ? std::string("an ") + json.type_name() : json.dump().substr(0, kMost);
}

namespace {

[[noreturn]] void refuse_file(const FileName& file, const std::string& why) {
  throw Error(ErrorCode::invalid_argument,
              one_line(fmt::format("{} {}: {}; {}", file.given_as, shortened(file.path), why, file.advice)));
}

/// Pipes and devices are read; what is no file at all is told apart, as zlib opens folders.
void check_can_read(const FileName& file) {
  std::error_code error;
  const auto type = std::filesystem::status(file.path, error).type();
  if (type == std::filesystem::file_type::not_found) refuse_file(file, "there is no such file");
  if (type == std::filesystem::file_type::directory) refuse_file(file, "is a folder, not a file");
}

/// What the parser says, without its ids: "line 3, column 7: unexpected end of input; expected ':'".
std::string syntax_error(std::string text) {
  constexpr std::string_view kBegin = "parse error at ";
  if (const size_t at = text.find(kBegin); at != std::string::npos) text.erase(0, at + kBegin.size());
  constexpr std::string_view kParsing = "syntax error while parsing ", kLast = "; last read: ", kWanted = "; expected ";
  if (const size_t at = text.find(kParsing); at != std::string::npos)
    if (const size_t end = text.find(" - ", at); end != std::string::npos) text.erase(at, end + 3 - at);
  // What was read last may be as long as the file.
  constexpr size_t kMostRead = 40;
  const size_t last = text.find(kLast), cut = last + kLast.size() + kMostRead;
  if (last == std::string::npos) return text;
  if (const size_t end = std::min(text.rfind(kWanted), text.size()); end > cut) text.replace(cut, end - cut, "...");
  return text;
}

/// A number that no double holds. The parser does not say where it stands.
std::string overflow_error(const std::string& text, const std::string& what) {
  const size_t begin = what.find('\''), end = what.rfind('\'');
  if (begin == std::string::npos || end <= begin + 1) return one_line(what);
  const std::string number = what.substr(begin + 1, end - begin - 1);
  // Digits within a string follow a quotation mark, or others of its characters.
  size_t at = text.find(number);
  constexpr std::string_view kBefore = ":,[ \t\r\n";
  while (at != std::string::npos && at > 0 && kBefore.find(text[at - 1]) == std::string_view::npos)
    at = text.find(number, at + 1);
  const std::string before = text.substr(0, std::min(at, text.size()));
  const size_t start_of_line = before.rfind('\n') + 1;  // of none: 0
  return fmt::format("line {}, column {}: {} is too large; numbers up to 1.8e308 are wanted",
                     1 + std::ranges::count(before, '\n'), 1 + before.size() - start_of_line, number.substr(0, 40));
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
  const auto refuse = [&](const std::string& why) {
    throw Error(ErrorCode::invalid_argument, one_line(fmt::format("{}: no JSON: {}", shortened(name), why)));
  };
  if (text.find_first_not_of(" \t\r\n") == std::string::npos) refuse("there is nothing in it");
  try {
    return Json::parse(text);
  } catch (const Json::parse_error& error) {
    refuse(syntax_error(error.what()));
  } catch (const Json::exception& error) {
    refuse(overflow_error(text, error.what()));
  }
  return {};
}

}  // namespace seqtile::plan
