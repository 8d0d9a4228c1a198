// tools/cli/serve/replay_summary.h -- the summary of a served trace that `seqtile replay` prints, as text and as JSON.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <string>
#include <vector>

#include "tools/cli/output.h"
#include "tools/cli/requests/trace.h"
#include "tools/cli/serve/layer_runner.h"
#include "tools/cli/serve/record_times.h"

namespace seqtile::cli {

/// The results of serving a trace.
struct Served {
  TraceSummary trace;
  PlanLimits limits{};
  Stream stream;
  LookupReport lookups;
  LayerReport layers;
  EngineCounters counters;
  std::vector<OperationTimes> times;
  bool is_served = false;  ///< no lookup has missed, or the policy answers misses
};

void print_summary(const Served& served, bool are_bad_rows_skipped, const std::string& next_prewarm);
/// Times of layers are absent; the caller adds them with ranks.
Json summary_json(const Served& served);

}  // namespace seqtile::cli
