// planner/compat/compat_problem.h -- the problem that the known planner makes of a graph with strategies.
// SPDX-License-Identifier: Apache-2.0
//
// Every producer's layout is priced against every layout that a consumer wants. Nodes that merge then follow their
// first input: for each of its strategies the cheapest one of theirs is theirs, and what follows them is connected to
// it. Runs of nodes that occur several times take the choices of the first one.
#pragma once
#include "planner/graph/graph.h"
#include "planner/graph/problem.h"

namespace seqtile::planner {

/// Requires: every node has strategies, as compat_reshard() wants its layouts.
Problem compat_problem(const Graph& graph);

/// By node: the node whose choice it repeats, -1 for none. The longest run of at least `least` nodes that each of its
/// first nodes' likes begin.
std::vector<int> repeated_nodes(const Graph& graph, int least);

}  // namespace seqtile::planner
