// planner/compat/compat_rules.h -- strategies of operators that the known planner does not know.
// SPDX-License-Identifier: Apache-2.0
//
// The strategies come from operator_rule.h, priced in the known planner's units: multiplies, and elements times bytes
// that are sent. Layouts have no partial sums there, so a strategy pays for summing its own partial results.
#pragma once
#include <memory>
#include <vector>

#include "planner/graph/graph.h"

namespace seqtile::planner {

class CompatRules {
 public:
  /// Requires: `graph` outlives this object.
  explicit CompatRules(const Graph& graph) : graph_(graph) {}

  /// Appends the node's strategies to `strategies`. Returns false, and appends none, where no rule is known for the
  /// node.
  bool add(size_t node, std::vector<Strategy>& strategies);

 private:
  void make();

  const Graph& graph_;
  /// A copy with the strategies of the rules; made for the first operator that needs it.
  std::unique_ptr<Graph> ruled_;
  std::vector<char> is_known_;
};

}  // namespace seqtile::planner
