// tools/cli/lookup_stream.h -- looks up every operation of every planned call, timed.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "autotune/engine.h"
#include "tools/cli/request_plan.h"

namespace seqtile::cli {

/// Which calls an operation of a model takes part in, and with which length.
enum class Role {
  rows,       ///< every call, by its tokens
  last_row,   ///< every call, for one row: the language model's head
  attention,  ///< calls of `phase`: by tokens, decode by keys
};

struct ServedOperation {
  std::string label;
  autotune::Workload workload;
  Role role = Role::rows;
  Phase phase = Phase::prefill;  ///< of Role::attention
  Handle handle;

  /// The bucketed length of this operation in `call`; 0: it takes no part.
  int64_t length_in(const PlannedCall& call) const {
    if (role == Role::rows) return call.tokens;
    if (role == Role::last_row) return 1;
    return call.phase != phase ? 0 : phase == Phase::decode ? call.kv : call.tokens;
  }
};

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
