// tools/cli/requests/trace.h -- reads a request trace row by row: CSV of any dialect or JSON lines, plain or gzipped.
// SPDX-License-Identifier: Apache-2.0
//
// A trace may have tens of millions of rows, so that none is kept: each request is handed on as it is read. A row that
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
  std::string layout;  ///< a name of trace_columns.h; empty: found by the columns' names
  /// Name, or position from 1; empty: the layout's. "usage.prompt_tokens" is a value in an object of JSON lines.
  std::string prompt_column, output_column, time_column;
};

struct TraceSummary {
  std::string layout;  ///< "azure"; "columns as named" if the options name them
  int64_t requests = 0, broken_rows = 0;
  std::vector<std::string> problems;      ///< "line 7: ContextTokens 'abc' is not ..."; of the first ten broken rows
  int64_t first_line = 0, last_line = 0;  ///< of the rows that are used
  std::optional<double> duration_s;       ///< from the earliest to the latest time that can be read; one alone is none
  int64_t unreadable_times = 0;           ///< or missing ones, of requests that are used all the same
};

struct TraceProgress {
  int64_t requests, bytes_done, bytes_total;  ///< bytes of the file as stored
};

/// Hands each usable request to `on_request`. Columns may stand in any order, beside further columns. Memory: a block
/// of the file and one row; a row of more than 16 MiB is an error.
/// Errors: invalid_argument if the file is of another kind, a column is missing, or no row can be used; io if it
/// cannot be read to its end.
TraceSummary read_trace(const TraceOptions& options, const std::function<void(const TraceRequest&)>& on_request,
                        const std::function<void(const TraceProgress&)>& on_progress = {});

}  // namespace seqtile::cli
