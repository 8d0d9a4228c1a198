// tools/cli/requests/trace_columns.h -- which columns of a trace hold the tokens and the time: public layouts, and
// names.
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
  std::string layout;             ///< as TraceSummary has it
  size_t prompt = 0, output = 0;  ///< positions from 0
  std::optional<size_t> time;
  double time_unit_s = 1;                ///< of times that are plain numbers
  std::string prompt_name, output_name;  ///< as the file spells them
  bool has_header = true;                ///< false: the first row holds numbers, columns are named by position
};

/// Names of the layouts that are known, for --requests-format.
std::vector<std::string> trace_layouts();

/// Capitals, spaces, underscores and other signs do not count: "Request tokens" is "request_tokens".
/// Requires: `first_row` has the names of the columns, or the first cells of a file without names.
/// `is_json`: the names are those of an object, never data.
/// Errors: invalid_argument when a column is missing or there twice, or two layouts fit.
TraceColumns find_columns(std::span<const std::string_view> first_row, int64_t line, bool is_json,
                          const TraceOptions& options);

}  // namespace seqtile::cli
