// tools/cli/simulate/repaired_json.cpp -- see repaired_json.h.
// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/simulate/repaired_json.h"

#include <algorithm>
#include <cctype>
#include <charconv>

namespace seqtile::cli {
namespace {

constexpr std::string_view kReplacement = "\\uFFFD";

/// Length of the UTF-8 character at the front of `text`; 0 if there is none.
size_t utf8_bytes(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(0);
  const size_t count = lead < 0x80 ? 1 : lead < 0xC2 ? 0 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : lead < 0xF5 ? 4 : 0;
  if (count > text.size()) return 0;
  for (size_t i = 1; i < count; ++i)
    if ((byte(i) & 0xC0) != 0x80) return 0;
  if (count < 3) return count;
  const bool is_too_long = (lead == 0xE0 && byte(1) < 0xA0) || (lead == 0xF0 && byte(1) < 0x90);
  const bool is_no_character = (lead == 0xED && byte(1) > 0x9F) || (lead == 0xF4 && byte(1) > 0x8F);
  return is_too_long || is_no_character ? 0 : count;
}

/// The code unit of an escape at the front, such as 0xD83D for "\uD83D"; 0 if there is no such escape.
unsigned escaped_unit(std::string_view text) {
  unsigned unit = 0;
  if (text.size() < 6 || !text.starts_with("\\u")) return 0;
  const auto [end, error] = std::from_chars(text.data() + 2, text.data() + 6, unit, 16);
  return error == std::errc() && end == text.data() + 6 ? unit : 0;
}

class Repairer {
 public:
  explicit Repairer(std::string_view line) : rest_(line) {}

  std::string run() {
    while (!rest_.empty()) {
      if (rest_.front() == '"') take_text();
      else if (std::isalnum(static_cast<unsigned char>(rest_.front())) || rest_.front() == '-') take_word();
      else keep(1);
    }
    return std::move(repaired_);
  }

 private:
  void keep(size_t bytes) {
    repaired_ += rest_.substr(0, bytes);
    rest_.remove_prefix(std::min(bytes, rest_.size()));
  }
  void replace(size_t bytes) {
    repaired_ += kReplacement;
    rest_.remove_prefix(bytes);
  }

  void take_text() {
    keep(1);
    while (!rest_.empty() && rest_.front() != '"') {
      const size_t bytes = utf8_bytes(rest_);
      const auto byte = static_cast<unsigned char>(rest_.front());
      if (rest_.front() == '\\') take_escape();
      else if (bytes == 0 || (byte != 0 && byte < ' ')) replace(1);
      else keep(bytes);
    }
    keep(1);
  }

  void take_escape() {
    const unsigned unit = escaped_unit(rest_);
    if (unit < 0xD800 || unit > 0xDFFF) return keep(2);
    const unsigned second = escaped_unit(rest_.substr(6));
    if (unit < 0xDC00 && second >= 0xDC00 && second <= 0xDFFF) keep(12);
    else replace(6);
  }

  void take_word() {
    const auto is_inside = [](char c) {
      return std::isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '+' || c == '.';
    };
    const auto end = std::ranges::find_if_not(rest_, is_inside);
    const std::string_view word = rest_.substr(0, static_cast<size_t>(end - rest_.begin()));
    double number = 0;
    const auto [last, error] = std::from_chars(word.data(), word.data() + word.size(), number);
    const bool is_too_large = error == std::errc::result_out_of_range && last == word.data() + word.size();
    if (!is_too_large && word != "NaN" && word != "Infinity" && word != "-Infinity") return keep(word.size());
    repaired_ += '"';
    keep(word.size());
    repaired_ += '"';
  }

  std::string_view rest_;
  std::string repaired_;
};

}  // namespace

std::string repaired_json_line(std::string_view line) { return Repairer(line).run(); }

}  // namespace seqtile::cli
