// tools/cli/requests/trace_cells.cpp -- see trace_cells.h.
// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/requests/trace_cells.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>

namespace seqtile::cli {
namespace {

constexpr int64_t kMaxTokens = int64_t{1} << 32;

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

template <class Number>
bool read_whole_text(std::string_view text, Number& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size();
}

/// Whether three zeros follow the number's only point or comma: "1.000" may be a thousand or one.
bool is_ambiguous(std::string_view text) {
  const size_t digits = std::min(text.find_first_not_of("0123456789"), text.size());
  return digits > 0 && text.front() != '0' && (text.substr(digits) == ".000" || text.substr(digits) == ",000");
}

/// A whole number, whose fraction may be written out: "374", "374.0", "374,00" as of a spreadsheet, "3.74e2".
std::optional<int64_t> whole_number(std::string_view text) {
  int64_t whole = 0;
  if (read_whole_text(text, whole)) return whole;
  if (const size_t comma = text.find(','); comma != std::string_view::npos) {
    const std::string_view fraction = text.substr(comma + 1);
    if (fraction.empty() || fraction.size() > 2 || fraction.find_first_not_of('0') != std::string_view::npos)
      return std::nullopt;
    text = text.substr(0, comma);
    return read_whole_text(text, whole) ? std::optional(whole) : std::nullopt;
  }
  double value = 0;
  if (!read_whole_text(text, value) || !(std::abs(value) < 1e15) || std::floor(value) != value) return std::nullopt;
  return static_cast<int64_t>(value);
}

/// Takes `digits` digits and, where one is expected, the sign behind them. Returns -1 where they are not there.
int take(std::string_view& text, size_t digits, std::string_view behind) {
  int value = 0;
  if (text.size() < digits || !read_whole_text(text.substr(0, digits), value) || value < 0) return -1;
  text.remove_prefix(digits);
  if (behind.empty()) return value;
  if (text.empty() || behind.find(text.front()) == std::string_view::npos) return -1;
  text.remove_prefix(1);
  return value;
}

/// "+02:00", "-0730", "Z" or nothing, as seconds.
std::optional<double> read_offset(std::string_view text) {
  text = trimmed(text);
  if (text.empty() || text == "Z" || text == "z" || text == "UTC") return 0.0;
  const double sign = text.front() == '-' ? -1 : 1;
  if (text.front() != '+' && text.front() != '-') return std::nullopt;
  text.remove_prefix(1);
  const int hours = take(text, 2, "");
  if (!text.empty() && text.front() == ':') text.remove_prefix(1);
  const int minutes = text.empty() ? 0 : take(text, 2, "");
  if (hours < 0 || minutes < 0 || !text.empty()) return std::nullopt;
  return sign * (3600.0 * hours + 60.0 * minutes);
}

std::optional<double> read_date(std::string_view text) {
  const int year = take(text, 4, "-/"), month = take(text, 2, "-/"), day = take(text, 2, " Tt");
  const int hour = take(text, 2, ":"), minute = take(text, 2, ":"), second = take(text, 2, "");
  if (std::min({year, month, day, hour, minute, second}) < 0) return std::nullopt;
  const std::chrono::year_month_day date{std::chrono::year(year), std::chrono::month(static_cast<unsigned>(month)),
                                         std::chrono::day(static_cast<unsigned>(day))};
  if (!date.ok() || hour > 23 || minute > 59 || second > 60) return std::nullopt;
  double fraction = 0;
  if (!text.empty() && (text.front() == '.' || text.front() == ',')) {
    const size_t end = std::min(text.find_first_not_of("0123456789", 1), text.size());
    double scale = 0.1;
    for (size_t i = 1; i < end; ++i, scale /= 10) fraction += scale * (text[i] - '0');
    text.remove_prefix(end);
  }
  const auto offset = read_offset(text);
  if (!offset) return std::nullopt;
  const auto days = std::chrono::sys_days(date).time_since_epoch().count();
  return 86400.0 * static_cast<double>(days) + 3600 * hour + 60 * minute + second + fraction - *offset;
}

}  // namespace

std::string read_tokens(std::string_view column, std::string_view text, int64_t least, int64_t& tokens) {
  text = trimmed(text);
  if (is_ambiguous(text))
    return fmt::format("{} '{}' may be {} or {}000: write it without a point or a comma", column, text,
                       text.substr(0, text.size() - 4), text.substr(0, text.size() - 4));
  const auto number = whole_number(text);
  if (number && *number >= least && *number <= kMaxTokens) {
    tokens = *number;
    return {};
  }
  if (text.empty()) return fmt::format("{} is empty", column);
  return fmt::format("{} '{}' is not a whole number from {} to {}", column, text.substr(0, 40), least, kMaxTokens);
}

std::optional<double> read_time(std::string_view text, double unit_s) {
  text = trimmed(text);
  double number = 0;
  if (!read_whole_text(text, number)) return read_date(text);
  if (!std::isfinite(number)) return std::nullopt;
  // 1e11 s is the year 5138, 1e11 ms is 1973: since 1970 nothing else has been written in larger numbers.
  if (std::abs(number) >= 1e17) return 1e-9 * number;
  if (std::abs(number) >= 1e14) return 1e-6 * number;
  if (std::abs(number) >= 1e11) return 1e-3 * number;
  return unit_s * number;
}

}  // namespace seqtile::cli
