// tools/cli/requests/request_plan.h -- the calls that a server makes for the requests of a trace, each distinct one
// once.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cstdint>
#include <random>
#include <span>
#include <unordered_map>
#include <vector>

#include "tools/cli/requests/trace.h"

namespace seqtile::cli {

enum class Phase { prefill, extend, decode };

/// One pass through the model: `tokens` new rows, `kv` keys afterwards (the new ones included).
struct PlannedCall {
  Phase phase;
  int64_t tokens, kv;
};

struct CountedCall {
  PlannedCall call;
  int64_t count;  ///< how often the trace asks for it
};

struct PlanLimits {
  int64_t chunk;             ///< most tokens of one prefill call: the covered length
  int64_t max_kv;            ///< decode steps with more keys are cut
  int64_t positions;         ///< of the model: prompts are cut there
  int64_t least_tokens = 1;  ///< calls with fewer are cut, so above 1 all decode steps
  int64_t min_kv = 1;        ///< decode steps with fewer keys are cut
};

/// Decode steps that are looked at per request, evenly spread over the generated tokens, first and last included.
constexpr int64_t kDecodeSamples = 8;

/// Everything that a trace asks of a model.
struct Stream {
  std::vector<CountedCall> calls;
  int64_t chunks = 0, cut_chunks = 0, decode_steps = 0, cut_decode_steps = 0;
  int64_t distinct_lengths = 0;                 ///< of prompts, as far as they go
  int64_t long_prompts = 0, long_requests = 0;  ///< prompts, and prompts that fit with their output, beyond positions
};

/// Adds up the calls of requests. The first chunk of a prompt is a prefill, later ones extend it, decode steps follow.
/// Memory: a count for every distinct length of prompts and of keys, so that of models' positions, not of requests.
class RequestPlan {
 public:
  explicit RequestPlan(const PlanLimits& limits) : limits_(limits) {}

  void add(const TraceRequest& request);
  /// Calls in the order of phases, tokens and keys.
  Stream stream() const;

 private:
  using Counts = std::unordered_map<int64_t, int64_t>;

  PlanLimits limits_;
  Counts prompts_;       ///< by length
  Counts decode_steps_;  ///< by keys
  Stream totals_;        ///< without calls
};

/// Draws calls at random, each as often as the trace asks for it. Requires: at least one call.
class CallSampler {
 public:
  explicit CallSampler(std::span<const CountedCall> calls);
  const PlannedCall& draw(std::mt19937_64& random) const;

 private:
  std::span<const CountedCall> calls_;
  std::vector<int64_t> ends_;  ///< of the calls, where each stands as often as it is asked for
};

}  // namespace seqtile::cli
