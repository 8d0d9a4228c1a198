// tools/cli/requests/trace_columns.cpp -- see trace_columns.h.
// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/requests/trace_columns.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "jit/base/counted.h"
#include "jit/base/nearest_word.h"
#include "tools/cli/errors.h"
#include "tools/cli/requests/trace_cells.h"

namespace seqtile::cli {
namespace {

/// A known layout. Column names are plain: lower case, letters and digits only.
struct Layout {
  const char *name, *prompt, *output, *time;
  double time_unit_s;
  const char* also;  ///< a column that only this of two layouts with the same names has; may be empty
};

// More special layouts stand first. "azure" is the layout of the traces of 2023 and 2024. Bailian times are in seconds,
// Mooncake's in milliseconds. The last two layouts have the names that servers use in their answers.
constexpr Layout kLayouts[] = {
    {"azure", "contexttokens", "generatedtokens", "timestamp", 1, ""},
    {"burstgpt", "requesttokens", "responsetokens", "timestamp", 1, ""},
    {"bailian", "inputlength", "outputlength", "timestamp", 1, "chatid"},
    {"mooncake", "inputlength", "outputlength", "timestamp", 1e-3, ""},
    {"openai", "prompttokens", "completiontokens", "created", 1, ""},
    {"tokens", "inputtokens", "outputtokens", "timestamp", 1, ""},
};

/// A name in the spelling of kLayouts.
std::string plain(std::string_view name) {
  std::string text;
  for (const char c : name) {
    if (c >= 'A' && c <= 'Z') text += static_cast<char>(c - 'A' + 'a');
    else if ((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || (c & 0x80)) text += c;
  }
  return text;
}

class ColumnFinder {
 public:
  ColumnFinder(std::span<const std::string_view> names, int64_t line, bool is_json, const TraceOptions& options)
      : names_(names), line_(line), is_json_(is_json), options_(options) {
    for (const std::string_view name : names) plain_.push_back(plain(name));
  }

  TraceColumns find() {
    if (!is_json_ && names_.size() < 2) fail_lone();
    const Layout* layout = find_layout();
    TraceColumns columns{.layout = layout ? layout->name : "columns as named"};
    columns.has_header = !is_by_position_;
    columns.prompt = require("--prompt-column", options_.prompt_column, layout ? layout->prompt : "");
    columns.output = require("--output-column", options_.output_column, layout ? layout->output : "");
    if (!options_.time_column.empty()) columns.time = require("--time-column", options_.time_column, "");
    else if (layout) columns.time = position_of(layout->time);
    if (layout) columns.time_unit_s = layout->time_unit_s;
    if (columns.prompt == columns.output) fail("has one column for both prompt and output tokens");
    columns.prompt_name = name_of(columns.prompt), columns.output_name = name_of(columns.output);
    return columns;
  }

 private:
  const Layout* find_layout() {
    is_by_position_ = is_position(options_.prompt_column) && is_position(options_.output_column) &&
                      (options_.time_column.empty() || is_position(options_.time_column)) && holds_numbers();
    if (!options_.prompt_column.empty() && !options_.output_column.empty() && options_.layout.empty()) return nullptr;
    const Layout* found = nullptr;
    for (const Layout& layout : kLayouts) {
      if (!options_.layout.empty() ? plain(options_.layout) != layout.name : !fits(layout)) continue;
      if (found && (plain(found->prompt) == layout.prompt)) continue;
      if (found)
        fail(
            fmt::format("fits the layouts {} and {}; choose by --requests-format, or name its columns by "
                        "--prompt-column and --output-column",
                        found->name, layout.name));
      found = &layout;
    }
    if (!found) fail_unknown();
    return found;
  }

  bool fits(const Layout& layout) const {
    return (!options_.prompt_column.empty() || position_of(layout.prompt)) &&
           (!options_.output_column.empty() || position_of(layout.output)) &&
           (std::string_view(layout.also).empty() || position_of(layout.also));
  }

  /// True if a cell of the first row is a number: a file without names has data in its first row.
  bool holds_numbers() const {
    if (is_json_) return false;
    int64_t tokens = 0;
    return std::ranges::any_of(names_, [&](std::string_view cell) { return read_tokens("", cell, 0, tokens).empty(); });
  }

  [[noreturn]] void fail_unknown() const {
    if (holds_numbers())
      fail(
          "has numbers where names of columns are expected; name the columns by their positions, for example "
          "--prompt-column 2 --output-column 3");
    fail_comment();
    if (const std::string flag = lacking_flag(); !flag.empty())
      fail(fmt::format("has no {} that a known layout has; name it by {}",
                       flag == "--prompt-column" ? "column of prompt tokens" : "column of output tokens", flag));
    fail(
        fmt::format("has no columns ContextTokens and GeneratedTokens, nor those of another known layout; name its "
                    "columns of tokens by --prompt-column and --output-column{}",
                    is_json_ ? ", those in an object with a dot: usage.prompt_tokens" : ""));
  }

  /// Fails if the first row begins like a comment.
  void fail_comment() const {
    for (const char* sign : {"#", "//"})
      if (!is_json_ && names_[0].starts_with(sign))
        fail(
            fmt::format("begins with {}; if it is a comment, take the line away, and if it has the names of the "
                        "columns, take the sign away",
                        sign));
  }

  [[noreturn]] void fail_lone() const {
    fail_comment();
    fail(
        "has one column; a trace has two or more, prompt tokens and output tokens, with , ; | a tab or a space between "
        "them");
  }

  /// The flag of the only column that is lacking: a layout or the other flag names the other one.
  std::string lacking_flag() const {
    const auto has = [&](const std::string& given, auto of_layout) {
      const auto is_there = [&](const Layout& layout) { return position_of(layout.*of_layout).has_value(); };
      return !given.empty() || std::ranges::any_of(kLayouts, is_there);
    };
    const bool has_prompt = has(options_.prompt_column, &Layout::prompt);
    const bool has_output = has(options_.output_column, &Layout::output);
    return has_prompt == has_output ? "" : has_prompt ? "--output-column" : "--prompt-column";
  }

  [[noreturn]] void fail(const std::string& what) const {
    std::string names = fmt::format("{}", fmt::join(names_, ", "));
    if (names.size() > 200) names = names.substr(0, 200) + "...";
    bad_input(fmt::format("--requests {}: line {} ({}) {}", options_.path, line_, names, what));
  }

  static bool is_position(const std::string& text) {
    return !text.empty() && text.size() < 6 && std::ranges::all_of(text, [](char c) { return c >= '0' && c <= '9'; });
  }

  std::optional<size_t> position_of(std::string_view wanted) const {
    const auto at = std::ranges::find(plain_, wanted);
    if (wanted.empty() || at == plain_.end()) return std::nullopt;
    if (std::find(at + 1, plain_.end(), wanted) != plain_.end())
      fail(fmt::format("has the column {} twice", names_[static_cast<size_t>(at - plain_.begin())]));
    return static_cast<size_t>(at - plain_.begin());
  }

  /// The column that `given`, the value of `flag`, names; the layout's column if `given` is empty.
  size_t require(const char* flag, const std::string& given, std::string_view of_layout) const {
    if (given.empty()) {
      if (const auto at = position_of(of_layout)) return *at;
      fail(fmt::format("has no column {} of --requests-format {}; name it by {}", of_layout, options_.layout, flag));
    }
    if (!is_by_position_) {
      if (std::ranges::count(names_, given) == 1)
        return static_cast<size_t>(std::ranges::find(names_, given) - names_.begin());
      if (const auto at = position_of(plain(given))) return *at;
    }
    if (is_position(given)) {
      const size_t number = std::stoul(given);
      if (number >= 1 && number <= names_.size()) return number - 1;
      fail(fmt::format("has {}; {} {} must be a position from 1 to {}, or a name", counted(names_.size(), "column"),
                       flag, given, names_.size()));
    }
    if (names_.size() < 2) fail_comment();
    fail(fmt::format("has no column '{}', which {} names{}", given, flag, did_you_mean(given, names_)));
  }

  std::string name_of(size_t at) const {
    return is_by_position_ ? fmt::format("column {}", at + 1) : std::string(names_[at]);
  }

  std::span<const std::string_view> names_;
  std::vector<std::string> plain_;
  int64_t line_;
  bool is_json_;
  const TraceOptions& options_;
  bool is_by_position_ = false;
};

}  // namespace

std::vector<std::string> trace_layouts() {
  std::vector<std::string> names;
  for (const Layout& layout : kLayouts) names.push_back(layout.name);
  return names;
}

TraceColumns find_columns(std::span<const std::string_view> first_row, int64_t line, bool is_json,
                          const TraceOptions& options) {
  return ColumnFinder(first_row, line, is_json, options).find();
}

}  // namespace seqtile::cli
