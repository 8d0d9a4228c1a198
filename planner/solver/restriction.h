// planner/solver/restriction.h -- a problem in which nodes have but some of their strategies.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <vector>

#include "planner/graph/problem.h"

namespace seqtile::planner {

/// By node: the strategies that are left to it, in rising order. Nodes that share a choice have the same ones.
using Allowed = std::vector<std::vector<int>>;

/// All of them.
Allowed all_strategies(const Problem& problem);
/// Its strategy i of a node is the i-th of those that are left. Requires: one at least is left to each node.
Problem restricted(const Problem& problem, const Allowed& allowed);
/// Choices of the restricted problem as those of the whole one.
Choices unrestricted(const Allowed& allowed, const Choices& choices);

}  // namespace seqtile::planner
