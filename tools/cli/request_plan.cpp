// tools/cli/request_plan.cpp -- see request_plan.h.
// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/request_plan.h"

#include <algorithm>
#include <set>

namespace seqtile::cli {

int64_t plan_request(const TraceRequest& request, const PlanLimits& limits, std::vector<PlannedCall>& calls) {
  for (int64_t done = 0; done < request.context;) {
    const int64_t tokens = std::min(limits.chunk, request.context - done);
    done += tokens;
    calls.push_back({done == tokens ? Phase::prefill : Phase::extend, tokens, done});
  }
  const int64_t steps = std::clamp<int64_t>(limits.max_kv - request.context, 0, request.generated);
  const int64_t samples = std::min(steps, kDecodeSamples);
  for (int64_t i = 0; i < samples; ++i) {
    const int64_t step = samples == 1 ? 1 : 1 + i * (steps - 1) / (samples - 1);
    calls.push_back({Phase::decode, 1, request.context + step});
  }
  return request.generated - steps;
}

Stream plan_stream(const Trace& trace, const PlanLimits& limits) {
  Stream stream;
  std::set<int64_t> lengths;
  for (const TraceRequest& request : trace.requests) {
    lengths.insert(request.context);
    stream.cut_decode_steps += plan_request(request, limits, stream.calls);
  }
  for (const PlannedCall& call : stream.calls) ++(call.phase == Phase::decode ? stream.decode_steps : stream.chunks);
  stream.distinct_lengths = static_cast<int64_t>(lengths.size());
  return stream;
}

}  // namespace seqtile::cli
