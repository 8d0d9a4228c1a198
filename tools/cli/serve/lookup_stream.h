// tools/cli/serve/lookup_stream.h -- looks up every operation of every planned call, and times a sample of the lookups.
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
  int64_t lookups = 0, misses = 0;      ///< as many as the trace asks for
  int64_t buckets = 0;                  ///< distinct (operation, bucket) pairs
  Percentiles lookup_ns;                ///< over groups of kLookupGroup consecutive lookups, per lookup
  std::vector<std::string> miss_lines;  ///< "qkv_proj, length 5000: ..."; the first five
};

/// Reading the clock takes as long as a lookup, so consecutive lookups are timed in groups.
constexpr int kLookupGroup = 16;
/// Calls whose lookups are timed, drawn at random.
constexpr int kTimedCalls = 1 << 16;

/// How often each length of `operation` is asked for.
std::map<int64_t, int64_t> count_lengths(const ServedOperation& operation, std::span<const CountedCall> calls);

/// Each distinct length of each operation is looked up once and counted as often as the calls ask for it.
LookupReport look_up_all(std::span<const ServedOperation> operations, std::span<const CountedCall> calls);

}  // namespace seqtile::cli
