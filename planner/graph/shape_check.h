// planner/graph/shape_check.h -- shapes that an operator cannot have, whatever its arguments.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <string>

#include "planner/graph/graph.h"

namespace seqtile::planner {

/// Which shapes of a node contradict its operator's, and what its result must be: "shapes of node y contradict each
/// other: ...". Empty where they agree, and where the operator, its form or its arguments are not known. The node's
/// inputs are in the graph.
std::string contradiction(const Graph& graph, const Node& node);

}  // namespace seqtile::planner
