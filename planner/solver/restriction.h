// planner/solver/restriction.h -- a problem in which nodes have only some of their strategies.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <vector>

#include "planner/graph/problem.h"

namespace seqtile::planner {

/// By node: the strategies that it keeps, in ascending order. Nodes that share a choice keep the same ones.
using Allowed = std::vector<std::vector<int>>;

/// Every strategy of every node.
Allowed all_strategies(const Problem& problem);
/// The problem with the strategies `allowed`. Strategy i of a node is the i-th that the node keeps.
/// Requires: each node keeps at least one strategy.
Problem restricted(const Problem& problem, const Allowed& allowed);
/// Translates choices of the restricted problem to those of the whole problem.
Choices unrestricted(const Allowed& allowed, const Choices& choices);

}  // namespace seqtile::planner
