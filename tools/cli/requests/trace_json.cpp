// tools/cli/requests/trace_json.cpp -- rows of JSON lines; see trace_rows.h.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "tools/cli/errors.h"
#include "tools/cli/requests/trace_rows.h"
#include "tools/cli/simulate/repaired_json.h"

namespace seqtile::cli {
namespace {

using nlohmann::json;

// Names of columns are those of this many objects, so that a first line of other facts, or one that lacks a field,
// decides nothing.
constexpr int kHeadObjects = 100;

/// The number without zeros behind its fraction: in JSON "1.000" is one, in a spreadsheet it may be a thousand.
std::string_view without_padding(std::string_view number) {
  if (number.find('.') == std::string_view::npos || number.find_first_of("eE") != std::string_view::npos) return number;
  const size_t last = number.find_last_not_of('0');
  return number.substr(0, last + (number[last] == '.' ? 2 : 1));
}

/// One object's own values as text, by name, and the inner values that `dotted` names; other inner values are passed
/// over. Strings are kept from row to row.
class ObjectValues {
 public:
  explicit ObjectValues(std::vector<std::string> dotted) : dotted_(std::move(dotted)) {}

  struct Value {
    std::string name, text;
  };

  void clear() {
    count_ = 0;
    begins_.clear();
    path_.clear();
    is_taken_ = false;
    problem_.clear();
  }
  std::span<const Value> values() const { return {values_.data(), count_}; }
  const std::string& problem() const { return problem_; }

  // The callbacks of nlohmann_json's sax_parse(); returning false ends the parse.
  bool null() { return set(""); }
  bool boolean(bool value) { return set(value ? "true" : "false"); }
  bool number_integer(json::number_integer_t value) { return set(fmt::format_int(value).c_str()); }
  bool number_unsigned(json::number_unsigned_t value) { return set(fmt::format_int(value).c_str()); }
  bool number_float(json::number_float_t, const json::string_t& text) { return set(without_padding(text)); }
  bool string(const json::string_t& text) { return set(text); }
  bool binary(const json::binary_t&) { return true; }
  bool start_object(size_t) { return (begins_.empty() || set("an object")) && open("."); }
  bool start_array(size_t) { return set("an array") && open("[]."); }
  bool end_object() { return begins_.pop_back(), true; }
  bool end_array() { return begins_.pop_back(), true; }
  bool key(const json::string_t& name) {
    is_taken_ = begins_.size() == 1;
    if (!is_taken_ && dotted_.empty()) return true;
    path_.resize(begins_.back());
    path_ += name;
    is_taken_ = is_taken_ || std::ranges::find(dotted_, path_) != dotted_.end();
    if (!is_taken_) return true;
    for (const Value& value : values())
      if (value.name == path_) return fail(fmt::format("has {} twice", path_));
    if (count_ == values_.size()) values_.emplace_back();
    values_[count_].name = path_;
    values_[count_++].text.clear();
    return true;
  }
  bool parse_error(size_t position, const std::string&, const json::exception&) {
    return fail(fmt::format("is not a JSON object on one line (byte {} of it); `jq -c .` writes one a line", position));
  }

 private:
  bool set(std::string_view text) {
    if (begins_.empty()) return fail("is not a JSON object");
    if (is_taken_) values_[count_ - 1].text = text;
    return true;
  }
  /// Names of what opens now go on behind the name of the value that is open.
  bool open(std::string_view sign) {
    if (!begins_.empty()) path_ += sign;
    begins_.push_back(path_.size());
    is_taken_ = false;
    return true;
  }
  bool fail(std::string problem) {
    problem_ = std::move(problem);
    return false;
  }

  std::vector<std::string> dotted_;
  std::vector<Value> values_;
  size_t count_ = 0;
  std::string path_;            ///< the last name, with the names of the values around it
  std::vector<size_t> begins_;  ///< by open value: where its names begin in path_
  bool is_taken_ = false;       ///< the value of the last name is a column
  std::string problem_;
};

class JsonRows : public TraceRows {
 public:
  JsonRows(std::string path, std::vector<std::string> dotted, OnRow on_row)
      : path_(std::move(path)), on_row_(std::move(on_row)), object_(std::move(dotted)) {}

  void feed(std::string_view bytes) override {
    for (size_t end; (end = bytes.find('\n')) != std::string_view::npos; bytes.remove_prefix(end + 1)) {
      if (rest_.empty()) take_line(bytes.substr(0, end));
      else take_line(rest_.append(bytes.substr(0, end)));
      rest_.clear();
    }
    rest_ += bytes;
    if (rest_.size() <= kMaxRowBytes) return;
    end_head();
    bad_input(
        fmt::format("--requests {}: line {} is longer than {} bytes; JSON lines have one object a line, which "
                    "`jq -c .` writes",
                    path_, line_, kMaxRowBytes));
  }

  void finish() override {
    if (!rest_.empty()) take_line(rest_);
    end_head();
  }

 private:
  /// Lines of the head wait until all of its names are known.
  void take_line(std::string_view line) {
    if (is_head_ended_) return hand_on(line);
    add_names(line);
    (head_ += line) += '\n';
    if (head_objects_ == kHeadObjects || head_.size() > kMaxRowBytes) end_head();
  }

  void add_names(std::string_view line) {
    if (is_blank(line) || !read(line)) return;
    ++head_objects_;
    add_names_of_object();
  }

  void add_names_of_object() {
    for (const ObjectValues::Value& value : object_.values())
      if (std::ranges::find(names_, value.name) == names_.end()) names_.push_back(value.name);
  }

  void end_head() {
    if (is_head_ended_) return;
    is_head_ended_ = true;
    std::string_view lines = head_;
    for (size_t end; (end = lines.find('\n')) != std::string_view::npos; lines.remove_prefix(end + 1))
      hand_on(lines.substr(0, end));
    head_ = {};
  }

  static bool is_blank(std::string_view line) { return line.find_first_not_of(" \t\r") == std::string_view::npos; }

  void hand_on(std::string_view line) {
    const int64_t number = line_++;
    if (is_blank(line)) return;
    if (!read(line)) return on_row_({number, number, {}, object_.problem()});
    if (!std::exchange(are_names_told_, true)) tell_names(number);
    cells_.assign(names_.size(), {});
    size_t next = 0;  // names mostly keep their order
    for (const ObjectValues::Value& value : object_.values()) {
      if (next >= names_.size() || names_[next] != value.name)
        next = static_cast<size_t>(std::ranges::find(names_, value.name) - names_.begin());
      if (next < names_.size()) cells_[next++] = value.text;
    }
    on_row_({number, number, cells_, {}});
  }

  /// Reads the object, repaired where JSON does not have its values.
  bool read(std::string_view line) {
    if (parse(line)) return true;
    const std::string repaired = repaired_json_line(line);
    return repaired != line && parse(repaired);
  }

  bool parse(std::string_view line) {
    object_.clear();
    json::sax_parse(line.begin(), line.end(), &object_);
    return object_.problem().empty();
  }

  void tell_names(int64_t number) {
    if (names_.empty()) add_names_of_object();
    cells_.assign(names_.begin(), names_.end());
    on_row_({number, number, cells_, {}});
  }

  std::string path_;
  OnRow on_row_;
  ObjectValues object_;
  std::string rest_;  ///< of a line that the next bytes go on with
  std::string head_;  ///< lines that wait for the names
  int head_objects_ = 0;
  bool is_head_ended_ = false, are_names_told_ = false;
  std::vector<std::string> names_;
  std::vector<std::string_view> cells_;
  int64_t line_ = 1;
};

}  // namespace

std::unique_ptr<TraceRows> make_json_rows(const std::string& path, std::vector<std::string> dotted,
                                          TraceRows::OnRow on_row) {
  return std::make_unique<JsonRows>(path, std::move(dotted), std::move(on_row));
}

}  // namespace seqtile::cli
