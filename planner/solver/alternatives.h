// planner/solver/alternatives.h -- the best plan for each strategy that a node could have.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <vector>

#include "planner/graph/problem.h"

namespace seqtile::planner {

/// The best plan in which a node has a given strategy.
struct Alternative {
  double own = 0;        ///< computation and communication of the node and of the nodes that share its choice
  double objective = 0;  ///< of the whole plan
};

/// The best plan for each strategy of `node`, without a memory budget. A node that follows another node has the
/// alternatives of that node.
std::vector<Alternative> alternatives_of(const Problem& problem, int node);

}  // namespace seqtile::planner
