// tools/cli/requests/trace.h -- a request trace, read row by row: CSV of any dialect or JSON lines, plain or packed by
// gzip.
// SPDX-License-Identifier: Apache-2.0
//
// A trace may have tens of millions of rows, so none is kept: every request is handed on as it is read. A row that
// cannot be used is left out, counted and named, never guessed.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace seqtile::cli {

struct TraceRequest {
  int64_t prompt = 0, output = 0;  ///< tokens
};

struct TraceOptions {
  std::string path;
  std::string layout;                                     ///< of trace_columns.h; empty: found by the columns' names
  std::string prompt_column, output_column, time_column;  ///< a name, or a position from 1; empty: the layout's
};

struct TraceSummary {
  std::string layout;  ///< "azure"; "columns as named" where the options name them
  int64_t requests = 0, broken_rows = 0;
  std::vector<std::string> problems;      ///< "line 7: ContextTokens 'abc' is not ..."; of the first ten broken rows
  int64_t first_line = 0, last_line = 0;  ///< of the rows that are used
  std::optional<double> duration_s;       ///< from the earliest to the latest time that can be read; one alone is none
  int64_t unreadable_times = 0;           ///< or missing ones, of requests that are used all the same
};

struct TraceProgress {
  int64_t requests, bytes_done, bytes_total;  ///< bytes of the file as it is stored
};

/// Hands every usable request to `on_request`. Columns may come in any order and others may be there. Memory: a block
/// of the file and one row, of which a longer one than 16 MiB is an error.
/// Errors: invalid_argument when the file is of another kind, a column is missing, or no row can be used; io when it
/// cannot be read to its end.
TraceSummary read_trace(const TraceOptions& options, const std::function<void(const TraceRequest&)>& on_request,
                        const std::function<void(const TraceProgress&)>& on_progress = {});

}  // namespace seqtile::cli
