// tools/cli/requests/trace_columns.h -- finds the columns of tokens and time in a trace, by public layouts or by name.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tools/cli/requests/trace.h"

namespace seqtile::cli {

struct TraceColumns {
  std::string layout;             ///< as in TraceSummary
  size_t prompt = 0, output = 0;  ///< positions from 0
  std::optional<size_t> time;
  double time_unit_s = 1;                ///< unit of times that are plain numbers
  std::string prompt_name, output_name;  ///< names as the file spells them
  bool has_header = true;                ///< false: the first row holds numbers, and positions name the columns
};

/// Names of the known layouts, for --requests-format.
std::vector<std::string> trace_layouts();

/// Finds the columns. Capitals, spaces, underscores and other signs in names do not count: "Request tokens" equals
/// "request_tokens".
/// Requires: `first_row` has the names of the columns, or the first cells of a file without names.
/// `is_json`: the names come from an object and are never data.
/// Errors: invalid_argument if a column is missing or occurs twice, or if two layouts fit.
TraceColumns find_columns(std::span<const std::string_view> first_row, int64_t line, bool is_json,
                          const TraceOptions& options);

}  // namespace seqtile::cli
