// planner/strategies/calibrated_strategies.h -- the ways to compute each operator, in seconds.
// SPDX-License-Identifier: Apache-2.0
//
// Every mesh axis cuts one of an operator's loops, or none (operator_rule.h); collectives within kernels are ways of
// their own. How prices are made: docs/planner.md.
#pragma once
#include "planner/strategies/operator_rule.h"

namespace seqtile::planner {

struct CalibratedStrategies {
  UnknownOperators unknown;    ///< kept whole
  std::vector<char> is_known;  ///< by node
  /// By node: of linears of one input, which are one kernel, the first one; else -1. They have the same ways.
  std::vector<int> follows;
};

/// Replaces the strategies of all nodes.
CalibratedStrategies generate_calibrated_strategies(Graph& graph, const CalibratedCosts& costs, ReshardTables& paths);

/// By node: whether a backward pass has a gradient of its result, as there are parameters before it.
std::vector<char> nodes_with_gradients(const Graph& graph);

}  // namespace seqtile::planner
