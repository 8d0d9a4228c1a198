// tools/cli/serve/replay_ranks.h -- serves the calls of a trace with a model that is cut over ranks.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <span>

#include "tools/cli/ranks/ranks.h"
#include "tools/cli/serve/layer_runner.h"

namespace seqtile::cli {

struct RankReplay {
  LookupReport lookups;  ///< lookups of all ranks, with the times of rank 0
  LayerReport layers;    ///< layers of all ranks, with the times of rank 0
  EngineCounters counters;
};

/// Each rank looks up all calls. If no record is missing, or `settings.policy` answers misses, all ranks then run
/// layers of randomly chosen calls for `seconds` and check their outputs. Errors: timeout if a rank waited for another
/// rank longer than the timeout; as RankModel.
RankReplay replay_on_ranks(const Session& session, const Options& options, const World& world,
                           const RankModel::Settings& settings, std::span<const CountedCall> calls, double seconds);

}  // namespace seqtile::cli
