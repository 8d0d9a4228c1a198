// autotune/text/json_text.cpp -- see json_text.h.
// SPDX-License-Identifier: Apache-2.0
#include "autotune/text/json_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <list>
#include <limits>
#include <stdexcept>

#include "autotune/text/json_scan.h"
#include "autotune/text/text_kind.h"
#include "cache/database/text.h"
#include "seqtile/error.h"

namespace seqtile::autotune {

using Json = nlohmann::json;

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
  if (json.is_number_float() && !std::isfinite(json.get<double>()))
    return std::isnan(json.get<double>()) ? "NaN" : json.get<double>() > 0 ? "Infinity" : "-Infinity";
  return json.is_structured() ? std::string("an ") + json.type_name() : json.dump().substr(0, kMost);
}

namespace {

/// What the parser says of a text within quotes, and what to do. The first one that fits counts.
constexpr std::pair<std::string_view, std::string_view> kStringCauses[] = {
    {"ill-formed UTF-8",
     "a byte that is not UTF-8, perhaps of Latin-1; convert it: iconv -f ISO-8859-1 -t UTF-8 OLD > NEW"},
    {"U+0000 ", "a zero byte in a text: the file is damaged; get it again"},
    {"control character", "a control character in a text; write it as \\t or \\u0001, or take it away"},
    {"surrogate", "half of a pair of \\u escapes (a surrogate); write both, or take it away"},
    {"4 hex digits", "\\u without four hexadecimal digits behind it; write such as \\u00e9"},
    {"backslash", "a '\\' before what JSON does not escape; write '\\\\'"},
};

/// What the parser says, without its ids: "line 3, column 7: unexpected end of input; expected ':'".
std::string syntax_error(std::string text) {
  constexpr std::string_view kBegin = "parse error at ", kString = "invalid string: ";
  if (const size_t at = text.find(kBegin); at != std::string::npos) text.erase(0, at + kBegin.size());
  if (const size_t at = text.find(kString); at != std::string::npos) {
    const std::string said = text.substr(at, text.find("; last read: ", at) - at);
    for (const auto& [words, cause] : kStringCauses)
      if (said.find(words) != std::string::npos) return fmt::format("{}: {}", text.substr(0, text.find(':')), cause);
  }
  constexpr std::string_view kParsing = "syntax error while parsing ";
  if (const size_t at = text.find(kParsing); at != std::string::npos)
    if (const size_t end = text.find(" - ", at); end != std::string::npos) text.erase(at, end + 3 - at);
  return text + "; correct the place";
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

/// Builds the value from the parser's events, and keeps what a repeated name replaces. Values stay where they are while
/// their parents are moved, so that pointers to them last.
class Builder final : public nlohmann::json_sax<Json> {
 public:
  bool null() override { return put(nullptr); }
  bool boolean(bool value) override { return put(value); }
  bool number_integer(number_integer_t value) override { return put(value); }
  bool number_unsigned(number_unsigned_t value) override { return put(value); }
  bool number_float(number_float_t value, const string_t& text) override {
    if (text.find_first_of(".eE") == std::string::npos) large_[path()] = text;
    return put(value);
  }
  bool string(string_t& value) override {
    if (value == kNan) return put(std::numeric_limits<double>::quiet_NaN());
    if (value == kInfinity) return put(std::numeric_limits<double>::infinity());
    if (value == kMinusInfinity) return put(-std::numeric_limits<double>::infinity());
    return put(std::move(value));
  }
  bool binary(binary_t&) override { return false; }
  bool start_object(size_t) override { return open(Json::object()); }
  bool start_array(size_t) override { return open(Json::array()); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool key(string_t& name) override {
    names_.back() = name;
    const auto found = open_.back()->find(name);
    if (found != open_.back()->end()) replaced_.push_back({path(), std::move(*found), &*found});
    slot_ = &(*open_.back())[name];
    return true;
  }
  bool parse_error(size_t, const std::string&, const nlohmann::detail::exception& error) override {
    error_ = error.what();
    return false;
  }

  const std::string& error() const { return error_; }
  JsonText result() {
    JsonText text;
    for (const Replaced& replaced : replaced_)
      if (replaced.old != *replaced.now)
        text.repeated.push_back(one_line(fmt::format("{} stands twice, as {} and as {}; the last one counts",
                                                     replaced.path, excerpt(replaced.old), excerpt(*replaced.now))));
    text.value = std::move(root_);
    text.large = std::move(large_);
    return text;
  }

 private:
  struct Replaced {
    std::string path;
    Json old;
    const Json* now;
  };

  std::string path() const {
    std::string path;
    for (const std::string& name : names_)
      if (!name.empty()) path += (path.empty() ? "" : ".") + name;
    return path;
  }
  bool put(Json value) {
    place(std::move(value));
    return true;
  }
  Json* place(Json value) {
    if (open_.empty()) return &(root_ = std::move(value));
    if (open_.back()->is_array()) return &open_.back()->emplace_back(std::move(value));
    return &(*slot_ = std::move(value));
  }
  bool open(Json value) {
    open_.push_back(place(std::move(value)));
    names_.emplace_back();
    return true;
  }
  bool close() {
    open_.pop_back();
    names_.pop_back();
    return true;
  }

  Json root_;
  std::vector<Json*> open_;
  std::vector<std::string> names_;  ///< the last one of each open value
  Json* slot_ = nullptr;            ///< of the name that was last
  std::list<Replaced> replaced_;
  std::map<std::string, std::string> large_;
  std::string error_;
};

}  // namespace

JsonText read_json(std::string_view text, const std::string& name, bool allows_non_finite) {
  const auto refuse = [&](const std::string& why) {
    throw Error(ErrorCode::invalid_argument, one_line(fmt::format("{}: no JSON: {}", shortened(name), why)));
  };
  if (const std::string kind = foreign_kind(text); !kind.empty()) refuse(kind);
  std::string scanned;
  try {
    scanned = scanned_json(without_mark(text), allows_non_finite);
  } catch (const std::invalid_argument& error) {
    refuse(error.what());
  }
  Builder builder;
  if (Json::sax_parse(scanned, &builder)) return builder.result();
  const bool is_overflow = builder.error().find("out_of_range") != std::string::npos;
  refuse(is_overflow ? overflow_error(scanned, builder.error()) : syntax_error(builder.error()));
  return {};
}

}  // namespace seqtile::autotune
