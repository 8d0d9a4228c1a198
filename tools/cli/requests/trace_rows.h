// tools/cli/requests/trace_rows.h -- cuts a trace into rows of cells: CSV by libcsv, JSON lines by nlohmann_json.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace seqtile::cli {

struct TraceRow {
  int64_t first_line = 0, last_line = 0;    ///< lines from 1; a quoted cell may span several lines
  std::span<const std::string_view> cells;  ///< cells of JSON lines are in the order of the first object's names
  std::string problem;                      ///< reason why the row cannot be read; `cells` is then empty
};

class TraceRows {
 public:
  using OnRow = std::function<void(const TraceRow&)>;

  virtual ~TraceRows() = default;
  /// Empty lines are skipped. Exceptions of `on_row` pass through. Errors: invalid_argument for a row longer than
  /// kMaxRowBytes.
  virtual void feed(std::string_view bytes) = 0;
  virtual void finish() = 0;

  static constexpr size_t kMaxRowBytes = 1 << 24;
};

/// The first row has the names, if the file has names. `path` is for messages.
std::unique_ptr<TraceRows> make_csv_rows(const std::string& path, char separator, TraceRows::OnRow on_row);
/// The names of the first object precede it as a row of their own. Cells of missing values have no data.
std::unique_ptr<TraceRows> make_json_rows(const std::string& path, TraceRows::OnRow on_row);

/// The separator of `head`'s first line: the most frequent of , ; tab | outside of quotes.
char separator_of(std::string_view head);

}  // namespace seqtile::cli
