// tools/cli/trace.h -- a request trace: CSV with the columns TIMESTAMP, ContextTokens, GeneratedTokens.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace seqtile::cli {

struct TraceRequest {
  int64_t context = 0, generated = 0;  ///< tokens
};

struct Trace {
  std::vector<TraceRequest> requests;
  int64_t broken_rows = 0;
  std::vector<std::string> problems;  ///< "line 7: ContextTokens 'abc' is not a number of at least 1"; the first ten
  int64_t first_line = 0, last_line = 0;  ///< of the rows that are used
};

/// Columns may come in any order and others may be there. A broken row is left out and counted.
/// Errors: invalid_argument when the file cannot be read, a column is missing or no row can be used.
Trace read_trace(const std::string& path);

}  // namespace seqtile::cli
