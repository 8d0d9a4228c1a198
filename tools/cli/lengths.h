// tools/cli/lengths.h -- lengths as users write them: one number, or a range.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cstdint>
#include <string>

namespace seqtile::cli {

struct LengthRange {
  int64_t lo, hi;
};

// Lengths are from 1 to autotune::kMaxLength. Errors: bad input with flag, value and limit or an example.
int64_t parse_length(const std::string& flag, const std::string& text);
/// "1..4096" or "512"; of --length only "512".
LengthRange parse_lengths(const std::string& flag, const std::string& text);

}  // namespace seqtile::cli
