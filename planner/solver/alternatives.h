// planner/solver/alternatives.h -- what a plan would cost if a node had another strategy.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <vector>

#include "planner/graph/problem.h"

namespace seqtile::planner {

/// The best plan in which a node has this strategy.
struct Alternative {
  double own = 0;        ///< computation and communication of the node, and of those that share its choice
  double objective = 0;  ///< of the whole plan
};

/// By strategy of the node. A node that follows another one has that one's alternatives.
std::vector<Alternative> alternatives_of(const Problem& problem, int node);

}  // namespace seqtile::planner
