// tools/cli/plan/plan_cache.h -- keeps plans in --cache and finds them again.
// SPDX-License-Identifier: Apache-2.0
//
// A plan is found by the hash of its inputs: graph, mesh, prices, options and the planner's version. The kernel records
// in its prices are then compared by hashes of their own. If any of them differs, the graph is planned again, and the
// new plan replaces the old one. A plan that cannot be kept costs a log line.
#pragma once
#include <optional>
#include <string>

#include "tools/cli/plan/plan.h"

namespace seqtile::cli {

struct KeptPlan {
  Priced priced;  ///< a plan that was found has only its chosen strategies
  planner::Solution solution;
  double ms = 0;  ///< milliseconds that planning took
};

class PlanCache {
 public:
  /// Requires: --cache. Errors: bad input if the path can be no store or the calibration is of another mesh.
  PlanCache(const planner::Graph& graph, const PriceSources& sources, const PlanOptions& options);

  std::optional<KeptPlan> find(const planner::Graph& graph) const;
  /// Requires: the solution is feasible.
  void keep(const KeptPlan& plan) const;

 private:
  std::string path_, manifest_;
  std::shared_ptr<RecordedKernels> records_;
};

}  // namespace seqtile::cli
