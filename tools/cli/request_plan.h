// tools/cli/request_plan.h -- the calls that a server makes for one request of a trace.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cstdint>
#include <vector>

#include "tools/cli/trace.h"

namespace seqtile::cli {

enum class Phase { prefill, extend, decode };

/// One pass through the model: `tokens` new rows, `kv` keys afterwards (the new ones included).
struct PlannedCall {
  Phase phase;
  int64_t tokens, kv;
};

struct PlanLimits {
  int64_t chunk;   ///< most tokens of one prefill call: the covered length
  int64_t max_kv;  ///< decode steps with more keys are cut
};

/// Decode steps that are looked at per request, evenly spread over the generated tokens, first and last included.
constexpr int64_t kDecodeSamples = 8;

/// Appends the calls of `request`: the first chunk is a prefill, later ones extend it, decode steps follow. Returns the
/// number of generated tokens that were cut.
int64_t plan_request(const TraceRequest& request, const PlanLimits& limits, std::vector<PlannedCall>& calls);

/// Everything that a trace asks of a model.
struct Stream {
  std::vector<PlannedCall> calls;
  int64_t chunks = 0, decode_steps = 0, cut_decode_steps = 0, distinct_lengths = 0;
};
Stream plan_stream(const Trace& trace, const PlanLimits& limits);

}  // namespace seqtile::cli
