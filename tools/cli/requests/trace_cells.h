// tools/cli/requests/trace_cells.h -- what the text of a trace's cell says: a number of tokens, a time.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace seqtile::cli {

/// Reads a whole number from `least` to 2^32, also written as 374.0, 374.00 or 3.74e2. "1.000" and "1,000" are refused,
/// since in half of the world they are a thousand. Returns the problem, or nothing.
std::string read_tokens(std::string_view column, std::string_view text, int64_t least, int64_t& tokens);

/// Seconds: of a date and time ("2024-05-10 00:00:00.5+02:00", also with T and Z) since 1970; of a plain number that
/// times `unit_s`, but of one that can only be a date in milliseconds, microseconds or nanoseconds since 1970 by those.
std::optional<double> read_time(std::string_view text, double unit_s);

}  // namespace seqtile::cli
