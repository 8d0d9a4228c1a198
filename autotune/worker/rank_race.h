// autotune/worker/rank_race.h -- rounds in which all ranks of an operation run each candidate together.
// SPDX-License-Identifier: Apache-2.0
//
// Before each sample the ranks meet; a sample's time is that of the slowest rank, which includes what it waits for its
// peers. Every rank has operands of its own, rotated as those of one process are (measured_call.h).
#pragma once
#include "autotune/call/launcher.h"
#include "autotune/runner.h"

namespace seqtile::autotune {

struct RankRace {
  const OpDef& op;  ///< with on_rank, of a fabric that has_rank_group()
  const Workload& workload;
  std::span<const LoadedCandidate* const> candidates;
  MeasurePlan plan;
  bool cold;
  double deadline_s;  ///< of a wait for a peer
};

/// By candidate the microseconds of each round. `current`: as of Meter::measure, set by rank 0.
/// Errors: timeout and internal where ranks have waited in vain, driver where one has died, out_of_resources.
std::vector<Series> race_ranks(const RankRace& race, volatile int64_t* current);

}  // namespace seqtile::autotune
