// tools/cli/requests/trace.cpp -- see trace.h.
// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/requests/trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "jit/base/counted.h"
#include "tools/cli/errors.h"
#include "tools/cli/requests/trace_cells.h"
#include "tools/cli/requests/trace_columns.h"
#include "tools/cli/requests/trace_file.h"
#include "tools/cli/requests/trace_rows.h"

namespace seqtile::cli {
namespace {

constexpr size_t kProblemsKept = 10;
constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

std::string lines_of(const TraceRow& row) {
  return row.first_line == row.last_line ? fmt::format("line {}", row.first_line)
                                         : fmt::format("lines {} to {}", row.first_line, row.last_line);
}

/// Takes the rows of one trace: first the row of the names, then the requests.
class RequestTaker {
 public:
  RequestTaker(const TraceOptions& options, bool is_json, const std::function<void(const TraceRequest&)>& on_request)
      : options_(options), is_json_(is_json), on_request_(on_request) {}

  void take(const TraceRow& row) {
    if (!row.problem.empty()) return is_named_ || is_json_ ? leave_out(row, row.problem) : refuse_names(row);
    if (is_named_) return take_request(row);
    columns_ = find_columns(row.cells, row.first_line, is_json_, options_);
    is_named_ = true;
    num_columns_ = row.cells.size();
    summary_.layout = columns_.layout;
    if (!columns_.has_header) take_request(row);
  }

  TraceSummary finish() {
    if (summary_.requests == 0) refuse_empty();
    const int64_t times = summary_.requests - summary_.unreadable_times;
    if (columns_.time && times >= std::min<int64_t>(summary_.requests, 2)) summary_.duration_s = last_s_ - first_s_;
    return std::move(summary_);
  }
  int64_t requests() const { return summary_.requests; }

 private:
  void take_request(const TraceRow& row) {
    TraceRequest request;
    std::string problem = width_problem(row);
    if (problem.empty()) problem = read_cell(row, columns_.prompt, columns_.prompt_name, 1, request.prompt);
    if (problem.empty()) problem = read_cell(row, columns_.output, columns_.output_name, 0, request.output);
    if (!problem.empty()) return leave_out(row, problem);
    if (columns_.time) note_time(row.cells[*columns_.time]);
    if (summary_.requests++ == 0) summary_.first_line = row.first_line;
    summary_.last_line = row.last_line;
    on_request_(request);
  }

  /// The problem of a row with another number of cells. Cells beyond the named columns must be empty: else a separator
  /// stands inside of a cell and shifts the cells behind it.
  std::string width_problem(const TraceRow& row) const {
    const bool is_short = !row.cells.empty() && row.cells.size() < num_columns_;
    if (is_short && row.cells[0].starts_with('#')) return "is a comment";
    const size_t shared = std::min(row.cells.size(), num_columns_);
    const bool has_more = std::ranges::any_of(row.cells.subspan(shared), [](auto cell) { return !cell.empty(); });
    if (row.cells.size() >= num_columns_ && !has_more) return {};
    return fmt::format("{}, {} expected", counted(row.cells.size(), "column"), num_columns_);
  }

  std::string read_cell(const TraceRow& row, size_t at, const std::string& name, int64_t least, int64_t& tokens) const {
    if (is_json_ && !row.cells[at].data()) return fmt::format("has no {}", name);
    if (is_json_ && row.cells[at] == "an object")
      return fmt::format("{} is an object; name the number in it as {}.NAME", name, name);
    return read_tokens(name, row.cells[at], least, tokens);
  }

  void note_time(std::string_view text) {
    const auto time = read_time(text, columns_.time_unit_s);
    if (!time) {
      ++summary_.unreadable_times;
      return;
    }
    first_s_ = std::min(first_s_, *time);
    last_s_ = std::max(last_s_, *time);
  }

  void leave_out(const TraceRow& row, const std::string& problem) {
    if (++summary_.broken_rows <= static_cast<int64_t>(kProblemsKept))
      summary_.problems.push_back(fmt::format("{}: {}", lines_of(row), problem));
  }

  /// Refuses a broken row of names, because the next row must not be taken for it.
  [[noreturn]] void refuse_names(const TraceRow& row) const {
    bad_input(fmt::format("--requests {}: {}, the first row, {}; correct it, as it has the names of the columns",
                          options_.path, lines_of(row), row.problem));
  }

  [[noreturn]] void refuse_empty() const {
    if (!summary_.problems.empty())
      bad_input(fmt::format("--requests {}: no usable row; {}", options_.path, summary_.problems[0]));
    bad_input(fmt::format("--requests {}: {}; give a trace with one request a row", options_.path,
                          is_named_ ? "no row follows the names of the columns" : "is empty"));
  }

  const TraceOptions& options_;
  bool is_json_;
  const std::function<void(const TraceRequest&)>& on_request_;
  TraceSummary summary_;
  TraceColumns columns_;
  bool is_named_ = false;
  size_t num_columns_ = 0;
  double first_s_ = std::numeric_limits<double>::max(), last_s_ = std::numeric_limits<double>::lowest();
};

/// Takes away a first line "sep=;", which spreadsheets write and read, and returns its separator; else guesses one.
char take_separator(std::string_view& head) {
  if (head.size() < 6 || !head.starts_with("sep=") || (head[5] != '\n' && head[5] != '\r')) return separator_of(head);
  const char separator = head[4];
  head.remove_prefix(5);  // the end of the line stays and counts as a line
  return separator;
}

/// The given names of columns that may stand in an object of an object.
std::vector<std::string> dotted_names(const TraceOptions& options) {
  std::vector<std::string> names;
  for (const std::string& name : {options.prompt_column, options.output_column, options.time_column})
    if (name.find('.') != std::string::npos) names.push_back(name);
  return names;
}

}  // namespace

TraceSummary read_trace(const TraceOptions& options, const std::function<void(const TraceRequest&)>& on_request,
                        const std::function<void(const TraceProgress&)>& on_progress) {
  TraceFile file(options.path);
  std::string_view bytes = file.read();
  if (bytes.starts_with(kByteOrderMark)) bytes.remove_prefix(kByteOrderMark.size());
  check_is_text(options.path, bytes);
  const size_t first = bytes.find_first_not_of(" \t\r\n");
  const bool is_json = first != std::string_view::npos && bytes[first] == '{';
  RequestTaker taker(options, is_json, on_request);
  const auto take = [&](const TraceRow& row) { taker.take(row); };
  const auto rows = is_json ? make_json_rows(options.path, dotted_names(options), take)
                            : make_csv_rows(options.path, take_separator(bytes), take);
  for (; !bytes.empty(); bytes = file.read()) {
    rows->feed(bytes);
    if (on_progress) on_progress({taker.requests(), file.bytes_done(), file.bytes_total()});
  }
  rows->finish();
  return taker.finish();
}

}  // namespace seqtile::cli
