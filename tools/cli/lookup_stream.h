// tools/cli/lookup_stream.h -- looks up every operation of every planned call, timed.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tools/cli/served_operation.h"

namespace seqtile::cli {

struct Percentiles {
  double p50 = 0, p99 = 0;
};
/// Of `values`, which are reordered.
Percentiles percentiles(std::vector<double>& values);

struct LookupReport {
  int64_t lookups = 0, misses = 0;
  int64_t buckets = 0;                  ///< distinct (operation, bucket) pairs
  Percentiles lookup_ns;                ///< over groups of kLookupGroup consecutive lookups, per lookup
  std::vector<std::string> miss_lines;  ///< "qkv_proj 5000: ..."; the first five
};

/// Reading the clock takes as long as a lookup, so consecutive lookups of the stream are timed in groups.
constexpr int kLookupGroup = 16;

LookupReport look_up_all(std::span<const ServedOperation> operations, std::span<const PlannedCall> calls);

}  // namespace seqtile::cli
