// autotune/worker/rank_race.h -- rounds in which all ranks of an operation run each candidate together.
// SPDX-License-Identifier: Apache-2.0
//
// The ranks align before each sample. A sample's time is that of the slowest rank, and includes its waits for peers.
// Every rank rotates operands of its own (measured_call.h).
#pragma once
#include "autotune/call/launcher.h"
#include "autotune/runner.h"

namespace seqtile::autotune {

struct RankRace {
  const OpDef& op;  ///< has on_rank, for a fabric that has_rank_group() supports
  const Workload& workload;
  std::span<const LoadedCandidate* const> candidates;
  MeasurePlan plan;
  bool cold;
  double timeout_s;  ///< timeout of a wait for a peer
};

/// Returns one series a candidate, with the microseconds of each round. Rank 0 sets `current` as Meter::measure does.
/// Errors: timeout and internal if a wait for a peer ended without success, driver if a rank has died,
/// out_of_resources.
std::vector<Series> race_ranks(const RankRace& race, volatile int64_t* current);

}  // namespace seqtile::autotune
