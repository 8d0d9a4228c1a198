// tools/cli/serve/lookup_stream.h -- looks up all operations of all planned calls, and times a sample of the lookups.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "tools/cli/requests/percentiles.h"
#include "tools/cli/served_operation.h"

namespace seqtile::cli {

struct LookupReport {
  int64_t lookups = 0, misses = 0;      ///< counted as often as the trace makes them
  int64_t buckets = 0;                  ///< distinct (operation, bucket) pairs
  Percentiles lookup_ns;                ///< nanoseconds per lookup, over groups of kLookupGroup consecutive lookups
  std::vector<std::string> miss_lines;  ///< the first five misses: "qkv_proj, length 5000: ..."
};

/// Consecutive lookups are timed in groups, because reading the clock takes as long as a lookup.
constexpr int kLookupGroup = 16;
/// Number of calls, drawn at random, whose lookups are timed.
constexpr int kTimedCalls = 1 << 16;

/// Counts the calls of `operation` by length.
std::map<int64_t, int64_t> count_lengths(const ServedOperation& operation, std::span<const CountedCall> calls);

/// Looks up each distinct length of each operation once, and counts it as often as the calls have it.
LookupReport look_up_all(std::span<const ServedOperation> operations, std::span<const CountedCall> calls);

}  // namespace seqtile::cli
