// planner/compat/compat_rules.h -- ways of operators for which the known planner has none.
// SPDX-License-Identifier: Apache-2.0
//
// They are those of operator_rule.h, in the known planner's units: multiplies, and elements times bytes that are sent.
// Layouts have no partial sums there, so that a strategy pays for bringing its own together.
#pragma once
#include <memory>
#include <vector>

#include "planner/graph/graph.h"

namespace seqtile::planner {

class CompatRules {
 public:
  /// Requires: the graph outlives this.
  explicit CompatRules(const Graph& graph) : graph_(graph) {}

  /// Gives the node its ways. False, and none, where no rule is known for it.
  bool add(size_t node, std::vector<Strategy>& strategies);

 private:
  void make();

  const Graph& graph_;
  std::unique_ptr<Graph> ruled_;  ///< made for the first operator that needs it
  std::vector<char> is_known_;
};

}  // namespace seqtile::planner
