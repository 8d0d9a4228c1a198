// autotune/text/json_scan.cpp -- see json_scan.h.
// SPDX-License-Identifier: Apache-2.0
#include "autotune/text/json_scan.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <vector>

#include "cache/database/text.h"

namespace seqtile::autotune {
namespace {

constexpr size_t kMostBrackets = 200;
constexpr size_t kShown = 20;  ///< characters of a text in a message
constexpr std::string_view kSpace = " \t\r\n";
constexpr std::string_view kNumberBytes = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_0123456789+-.";
constexpr std::string_view kWordBytes = kNumberBytes.substr(0, kNumberBytes.find('+'));

using Word = std::pair<std::string_view, std::string_view>;

/// Words in place of what JSON has for them.
constexpr Word kWords[] = {
    {"True", "is Python's; JSON has true"},     {"False", "is Python's; JSON has false"},
    {"None", "is Python's; JSON has null"},     {"undefined", "is JavaScript's; JSON has null"},
    {"nan", "is no number of JSON; write NaN"}, {"inf", "is no number of JSON; write Infinity"},
    {"TRUE", "is written true in JSON"},        {"FALSE", "is written false in JSON"},
    {"nil", "is written null in JSON"},         {"NULL", "is written null in JSON"},
    {"yes", "is YAML's; JSON has true"},        {"no", "is YAML's; JSON has false"},
};

bool is_digit(char c) { return c >= '0' && c <= '9'; }

/// -1.5e+3: no '+' before it, no 0 before other digits, digits on both sides of the point.
bool is_json_number(std::string_view text) {
  const auto take_digits = [&] {
    const size_t digits = std::min(text.find_first_not_of("0123456789"), text.size());
    text.remove_prefix(digits);
    return digits;
  };
  const auto take = [&](std::string_view any) {
    const bool is_there = !text.empty() && any.find(text.front()) != std::string_view::npos;
    if (is_there) text.remove_prefix(1);
    return is_there;
  };
  take("-");
  const bool is_zero = text.starts_with('0');
  if (const size_t digits = take_digits(); digits == 0 || (is_zero && digits > 1)) return false;
  if (take(".") && take_digits() == 0) return false;
  if (!take("eE")) return text.empty();
  take("+-");
  return take_digits() > 0 && text.empty();
}

class Scanner {
 public:
  Scanner(std::string_view text, bool allows_non_finite)
      : text_(text), scanned_(text), allows_non_finite_(allows_non_finite) {}

  std::string run() {
    while (at_ = std::min(text_.find_first_not_of(kSpace, at_), text_.size()), at_ < text_.size()) token();
    if (!open_.empty())
      fail(open_.back(), fmt::format("'{}' is not closed: the file is cut off; get it again", text_[open_.back()]));
    return std::move(scanned_);
  }

 private:
  [[noreturn]] void fail(size_t at, const std::string& why) const {
    throw std::invalid_argument(place_in(text_, at) + ": " + why);
  }
  bool has(std::string_view what) const { return text_.substr(at_).starts_with(what); }

  void token() {
    const char c = text_[at_];
    if (open_.empty() && has_value_) text_behind();
    else if (c == ',' || c == ':') separator();
    else if (c == '{' || c == '[') open();
    else if (c == '}' || c == ']') close();
    else if (c == '"') value(string_end());
    else if (kWordBytes.substr(0, 53).find(c) != std::string_view::npos || has("-Infinity") || has("-inf")) word();
    else if (c == '-' || c == '+' || c == '.' || is_digit(c)) number();
    else stranger();
  }

  /// Refuses what follows the end of the value.
  [[noreturn]] void text_behind() const {
    const char c = text_[at_];
    if (is_stranger()) stranger();
    if (c == '{' || c == '[')
      fail(at_, fmt::format("another '{}' behind the end of the value: two files in one, or a value on each line; give "
                            "a file of one value",
                            c));
    if (c == '}' || c == ']') fail(at_, fmt::format("'{}' closes nothing; take it away", c));
    const std::string_view line = text_.substr(at_, std::min(text_.find_first_of("\r\n", at_), text_.size()) - at_);
    fail(at_, fmt::format("there is more text behind the end of the value: '{}'; take it away",
                          cache::one_line(line, kShown)));
  }

  /// Whether the last thing was a name in an object, without a ':' behind it.
  bool is_behind_name() const {
    return has_value_ && !open_.empty() && text_[open_.back()] == '{' &&
           (text_[separator_] == '{' || text_[separator_] == ',');
  }

  void separator() {
    if (!has_value_) fail(at_, fmt::format("a value or a name is missing before this '{}'", text_[at_]));
    if ((text_[at_] == ':') != is_behind_name())
      fail(at_, text_[at_] == ':' ? "a ':' where no name is before it; a ',' is wanted"
                                  : "a ':' and a value are missing before this ','");
    separator_ = at_++;
    has_value_ = false;
  }

  /// A value or a name from at_ to `end`.
  void value(size_t end) {
    if (has_value_) fail(at_, fmt::format("a '{}' is missing before it", is_behind_name() ? ':' : ','));
    has_value_ = true;
    at_ = std::min(end, text_.size());
  }

  void number() {
    const size_t begin = at_, end = std::min(text_.find_first_not_of(kNumberBytes, at_), text_.size());
    value(end);
    const std::string_view number = text_.substr(begin, end - begin);
    if (!is_json_number(number))
      fail(begin, fmt::format("{} is no number of JSON; write it as in 20, -1.5 or 1e-5", number.substr(0, 40)));
  }

  void open() {
    value(at_ + 1);
    separator_ = at_ - 1;
    has_value_ = false;
    open_.push_back(at_ - 1);
    if (open_.size() > kMostBrackets)
      fail(at_ - 1, fmt::format("{} brackets are open here, at most {} are read", open_.size(), kMostBrackets));
  }

  void close() {
    if (!open_.empty() && !has_value_ && text_[separator_] == ',')
      fail(separator_, fmt::format("a comma before '{}'; take it away", text_[at_]));
    if (is_behind_name() || (!open_.empty() && !has_value_ && text_[separator_] == ':'))
      fail(at_, fmt::format("a value is missing before this '{}'", text_[at_]));
    if (open_.empty()) fail(at_, fmt::format("'{}' closes nothing; take it away", text_[at_]));
    const char opened = text_[open_.back()];
    if ((opened == '{') != (text_[at_] == '}'))
      fail(at_,
           fmt::format("'{}' where the '{}' of {} is to be closed", text_[at_], opened, place_in(text_, open_.back())));
    open_.pop_back();
    has_value_ = true;
    separator_ = at_++;
  }

  size_t string_end() const {
    for (size_t i = at_ + 1; i < text_.size(); ++i) {
      if (text_[i] == '"') return i + 1;
      if (text_[i] == '\n') fail(at_, "a text that does not end in its line; a '\"' is missing");
      if (text_[i] == '\\') ++i;
    }
    fail(at_, "a text that does not end: the file is cut off; get it again");
  }

  void word() {
    const size_t begin = at_ + (text_[at_] == '-'), end = text_.find_first_not_of(kWordBytes, begin);
    const std::string_view whole = text_.substr(begin, end - begin);
    if (whole == "NaN" || whole == "Infinity") return non_finite(whole);
    if (whole == "true" || whole == "false" || whole == "null") return value(end);
    const size_t next = text_.find_first_not_of(kSpace, begin + whole.size());
    const bool is_name = next != std::string_view::npos && text_[next] == ':';
    if (const auto* known = std::ranges::find(kWords, whole, &Word::first); known != std::end(kWords) && !is_name)
      fail(at_, fmt::format("{} {}", whole, known->second));
    fail(at_, fmt::format("{}{} without '\"'; {}", whole.substr(0, 40), whole.size() > 40 ? "..." : "",
                          open_.empty() ? "a file of JSON begins with '{'" : "names and texts stand in '\"'"));
  }

  void non_finite(std::string_view word) {
    const bool is_minus = text_[at_] == '-';
    if (!allows_non_finite_) fail(at_, fmt::format("{} is Python's; a finite number is wanted", word));
    const size_t end = at_ + is_minus + word.size();
    const std::string same = word == "NaN" ? "\"\x7F\"" : is_minus ? " \"\\u0002\"" : "\"\\u0001\"";
    if (is_minus && word == "NaN") fail(at_, "-NaN is no number; write NaN");
    scanned_.replace(at_, same.size(), same);
    value(end);
  }

  /// Whether the byte begins nothing in JSON.
  bool is_stranger() const {
    constexpr std::string_view kKnown = ",:{}[]\"-+.";
    return kKnown.find(text_[at_]) == std::string_view::npos && kWordBytes.find(text_[at_]) == std::string_view::npos;
  }

  /// "U+200B", or "byte 255" of a text that is not UTF-8.
  std::string name_of_character() const {
    const auto byte = [&](size_t i) {
      return at_ + i < text_.size() ? static_cast<unsigned char>(text_[at_ + i]) : 0u;
    };
    const size_t more = byte(0) >= 0xF0 ? 3 : byte(0) >= 0xE0 ? 2 : byte(0) >= 0xC2 ? 1 : 0;
    unsigned code = byte(0) & (0x3Fu >> more);
    for (size_t i = 1; i <= more; ++i) {
      if ((byte(i) & 0xC0) != 0x80) return fmt::format("byte {}", byte(0));
      code = code << 6 | (byte(i) & 0x3F);
    }
    return more == 0 ? fmt::format("byte {}", byte(0)) : fmt::format("U+{:04X}", code);
  }

  /// Refuses such a byte.
  [[noreturn]] void stranger() const {
    if (has("//") || has("/*") || has("#")) fail(at_, "a comment; JSON has none, take it away");
    if (has("<<<<<<<") || has("=======") || has(">>>>>>>")) fail(at_, "a conflict of git; resolve it");
    if (has("'") || has("`") || has("\xE2\x80\x98") || has("\xE2\x80\x9C") || has("\xE2\x80\x9D"))
      fail(at_, "a quotation mark that JSON does not have; write '\"'");
    if (has("\xEF\xBB\xBF"))
      fail(at_, "one more mark of UTF-8 (U+FEFF), as of two files that were joined; take it away");
    if (has("\xC2\xA0")) fail(at_, "a space that JSON does not have (U+00A0); write a plain one");
    if (text_[at_] == 0) fail(at_, "a zero byte: the file is damaged; get it again");
    const auto byte = static_cast<unsigned char>(text_[at_]);
    fail(at_, fmt::format("{} where a value or a name of JSON is to stand; take it away",
                          byte > ' ' && byte < 0x7F ? fmt::format("'{}'", text_[at_]) : name_of_character()));
  }

  const std::string_view text_;
  std::string scanned_;
  const bool allows_non_finite_;
  size_t at_ = 0;
  std::vector<size_t> open_;  ///< where the brackets stand
  size_t separator_ = 0;      ///< the comma, colon or bracket that was last
  bool has_value_ = false;    ///< behind it
};

}  // namespace

std::string place_in(std::string_view text, size_t at) {
  const std::string_view before = text.substr(0, at), line = before.substr(before.rfind('\n') + 1);
  const auto begins_character = [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; };
  return fmt::format("line {}, column {}", 1 + std::ranges::count(before, '\n'),
                     1 + std::ranges::count_if(line, begins_character));
}

std::string scanned_json(std::string_view text, bool allows_non_finite) {
  return Scanner(text, allows_non_finite).run();
}

}  // namespace seqtile::autotune
