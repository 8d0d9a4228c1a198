// tools/cli/serve/replay_summary.h -- what `seqtile replay` tells of a served trace, for people and for programs.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <string>
#include <vector>

#include "tools/cli/output.h"
#include "tools/cli/requests/trace.h"
#include "tools/cli/serve/layer_runner.h"
#include "tools/cli/serve/record_times.h"

namespace seqtile::cli {

/// What serving the trace has given.
struct Served {
  TraceSummary trace;
  PlanLimits limits{};
  Stream stream;
  LookupReport lookups;
  LayerReport layers;
  EngineCounters counters;
  std::vector<OperationTimes> times;
  bool is_served = false;  ///< no miss that the policy has no answer for
};

void print_summary(const Served& served, bool are_bad_rows_skipped, const std::string& next_prewarm);
/// Times of layers are told with ranks only, by the caller.
Json summary_json(const Served& served);

}  // namespace seqtile::cli
