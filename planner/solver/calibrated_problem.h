// planner/solver/calibrated_problem.h -- the problem of a graph whose strategies are priced in seconds.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "planner/graph/problem.h"
#include "planner/strategies/calibrated_strategies.h"

namespace seqtile::planner {

/// Makes the solver's problem. The cost of an edge is the cheapest path from the producer's layout to the layout that
/// the consumer wants; in training the path of the gradient back is added. Linears of one input follow the first one;
/// no other node follows.
/// Requires: the graph's strategies are those of `strategies`, or a subset of them.
Problem calibrated_problem(const Graph& graph, const CalibratedStrategies& strategies, const CalibratedCosts& costs,
                           ReshardTables& paths);

}  // namespace seqtile::planner
