// tools/cli/plan/plan_cache.h -- plans that are kept in --cache and found again.
// SPDX-License-Identifier: Apache-2.0
//
// A plan is found by all that decides it: graph, mesh, prices, options and the planner's version by one hash, then the
// kernel records in its prices, each by its own. Where any differs the graph is planned again, and the new plan takes
// the old one's place. Plans that cannot be kept cost a log line.
#pragma once
#include <optional>
#include <string>

#include "tools/cli/plan/plan.h"

namespace seqtile::cli {

struct KeptPlan {
  Priced priced;  ///< of one that was found, with the chosen strategies alone
  planner::Solution solution;
  double ms = 0;  ///< that planning took
};

class PlanCache {
 public:
  /// Requires: --cache. Errors: bad input where it can be no store; those of a calibration of another mesh.
  PlanCache(const planner::Graph& graph, const PriceSources& sources, const PlanOptions& options);

  std::optional<KeptPlan> find(const planner::Graph& graph) const;
  /// Requires: the solution is feasible.
  void keep(const KeptPlan& plan) const;

 private:
  std::string path_, manifest_;
  std::shared_ptr<RecordedKernels> records_;
};

}  // namespace seqtile::cli
