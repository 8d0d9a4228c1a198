// planner/compat/compat_problem.h -- the solver's problem of a graph, as the known planner poses it.
// SPDX-License-Identifier: Apache-2.0
//
// An edge prices every layout of the producer against every layout that the consumer wants. A node that merges then
// follows its first input, the leader: for each strategy of the leader it takes its own cheapest strategy, and its
// consumers are connected to the leader. Runs of nodes that occur several times take the choices of the first run.
#pragma once
#include "planner/graph/graph.h"
#include "planner/graph/problem.h"

namespace seqtile::planner {

/// Requires: every node has strategies; their layouts meet the requirements of compat_reshard().
Problem compat_problem(const Graph& graph);

/// Finds the longest run of at least `least` nodes that also starts at every other node with the signature of its first
/// node. Returns, by node, the node of the first run whose choice it repeats, or -1.
std::vector<int> repeated_nodes(const Graph& graph, int least);

}  // namespace seqtile::planner
