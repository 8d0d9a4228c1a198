// planner/solver/calibrated_problem.h -- the problem of a graph whose strategies are priced in seconds.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "planner/graph/problem.h"
#include "planner/strategies/calibrated_strategies.h"

namespace seqtile::planner {

/// Every edge has the cheapest path from what its producer leaves to what its consumer wants, and in training that of
/// the gradient back. No node merges into another one.
/// Requires: the graph's strategies are those of `strategies`, or some of them.
Problem calibrated_problem(const Graph& graph, const CalibratedStrategies& strategies, const CalibratedCosts& costs,
                           ReshardTables& paths);

}  // namespace seqtile::planner
