// planner/strategies/calibrated_strategies.h -- the strategies of every operator, priced in seconds.
// SPDX-License-Identifier: Apache-2.0
//
// Every mesh axis cuts one of an operator's loops, or none (operator_rule.h). Kernels that contain a collective are
// strategies of their own. docs/planner.md explains the prices.
#pragma once
#include "planner/strategies/operator_rule.h"

namespace seqtile::planner {

struct CalibratedStrategies {
  UnknownOperators unknown;    ///< operators without a rule; they stay whole
  std::vector<char> is_known;  ///< by node
  /// By node: linears of one input are one kernel and follow the first of them; -1 for any other node. Nodes that
  /// follow have the strategies of the first one, in the same order.
  std::vector<int> follows;
};

/// Replaces the strategies of all nodes.
CalibratedStrategies generate_calibrated_strategies(Graph& graph, const CalibratedCosts& costs, ReshardTables& paths);

/// By node: whether a backward pass computes a gradient of its result, because a parameter comes before it.
std::vector<char> nodes_with_gradients(const Graph& graph);

}  // namespace seqtile::planner
