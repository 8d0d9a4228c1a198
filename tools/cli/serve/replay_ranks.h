// tools/cli/serve/replay_ranks.h -- serves the calls of a trace through a model that is cut over ranks.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <span>

#include "tools/cli/ranks/ranks.h"
#include "tools/cli/serve/layer_runner.h"

namespace seqtile::cli {

struct RankReplay {
  LookupReport lookups;  ///< of all ranks; times are those of rank 0
  LayerReport layers;    ///< the same
  EngineCounters counters;
};

/// Every rank looks up all calls; then, where nothing is missing or `settings.policy` has an answer, all ranks run
/// layers of randomly chosen calls for `seconds` and check their outputs. Errors: timeout where a rank waited for
/// another one longer than the deadline, and as RankModel.
RankReplay replay_on_ranks(const Session& session, const Options& options, const World& world,
                           const RankModel::Settings& settings, std::span<const CountedCall> calls, double seconds);

}  // namespace seqtile::cli
