// tools/cli/lengths.cpp -- see lengths.h.
// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/lengths.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <string_view>

#include "seqtile/op.h"
#include "tools/cli/errors.h"
#include "tools/cli/parse_number.h"

namespace seqtile::cli {
namespace {

constexpr std::string_view kDecimalDigits = "0123456789";

/// "1..64" for a text with two numbers, such as "1-64", "1:64" or "1 to 64". Empty for any other text.
std::string as_range(const std::string& text) {
  const auto end_of = [&](size_t at) { return std::min(text.find_first_not_of(kDecimalDigits, at), text.size()); };
  const size_t first = text.find_first_of(kDecimalDigits);
  if (first == std::string::npos) return {};
  const size_t behind = end_of(first), last = text.find_first_of(kDecimalDigits, behind);
  if (last == std::string::npos || text[last] == '0') return {};
  const std::string between = text.substr(behind, last - behind);
  const auto is_word = [](unsigned char c) { return std::isalpha(c) || c == '_'; };
  const std::string around = text.substr(0, first) + (between == " to " ? "" : between) + text.substr(end_of(last));
  const bool has_more = text.find_first_of(kDecimalDigits, end_of(last)) != std::string::npos;
  const bool is_one_number = between == "." || (between == "," && end_of(last) - last == 3);
  if (is_one_number || has_more || std::ranges::any_of(around, is_word)) return {};
  return fmt::format("{}..{}", text.substr(first, behind - first), text.substr(last, end_of(last) - last));
}

[[noreturn]] void refuse_lengths(const std::string& flag, const std::string& text) {
  const std::string range = as_range(text);
  bad_input(fmt::format("{} '{}': lengths are given as A..B, or as one number; write for example {}", flag, text,
                        range.empty() ? "1..4096" : range));
}

bool has_only_digits(std::string_view text) {
  text.remove_prefix(text.starts_with('-'));
  return !text.empty() && text.find_first_not_of(kDecimalDigits) == std::string_view::npos;
}

}  // namespace

int64_t parse_length(const std::string& flag, const std::string& text) {
  int64_t length = 0;
  const std::string range = as_range(text);
  if (!range.empty())
    bad_input(
        fmt::format("{} '{}': a range, where one length is wanted; give one number, or a range to a command that "
                    "takes --lengths {}",
                    flag, text, range));
  if (!parse_number(text, length))
    bad_input(fmt::format("{} '{}': not a length; give a whole number, at least 1 and at most {}", flag, text,
                          autotune::kMaxLength));
  if (length < 1 || length > autotune::kMaxLength)
    bad_input(fmt::format("{} {}: a length is at least 1 and at most {}", flag, text, autotune::kMaxLength));
  return length;
}

LengthRange parse_lengths(const std::string& flag, const std::string& text) {
  const size_t dots = text.find("..");
  if (flag == "--length" || (dots == std::string::npos && has_only_digits(text))) {
    const int64_t length = parse_length(flag, text);
    return {length, length};
  }
  if (dots == std::string::npos) refuse_lengths(flag, text);
  const std::string first = text.substr(0, dots), last = text.substr(dots + 2), whole = flag + " " + text + ": ";
  if (!has_only_digits(first) || !has_only_digits(last)) refuse_lengths(flag, text);
  const LengthRange range{parse_length(whole + "first", first), parse_length(whole + "last", last)};
  if (range.lo > range.hi)
    bad_input(fmt::format("{} {}: the first length is above the last; write {}..{}", flag, text, range.hi, range.lo));
  return range;
}

}  // namespace seqtile::cli
