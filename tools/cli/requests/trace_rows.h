// tools/cli/requests/trace_rows.h -- cuts a trace into rows of cells: CSV by libcsv, JSON lines by nlohmann_json.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace seqtile::cli {

struct TraceRow {
  int64_t first_line = 0, last_line = 0;    ///< from 1; a quoted cell may hold the ends of lines
  std::span<const std::string_view> cells;  ///< of JSON lines in the order of the names that were told
  std::string problem;                      ///< why it is no row; the cells are none then
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
/// Before the row of the first object the names of the first hundred objects come as a row. Cells of values that are
/// missing have no data. Columns are an object's own values, and those of the objects in it that `dotted` names, such
/// as "usage.prompt_tokens".
std::unique_ptr<TraceRows> make_json_rows(const std::string& path, std::vector<std::string> dotted,
                                          TraceRows::OnRow on_row);

/// The separator of the cells of `head`'s first line: the most frequent of , ; tab | outside of quotes, or where it
/// has none of them the space. Any number of spaces stands between two cells.
char separator_of(std::string_view head);

}  // namespace seqtile::cli
