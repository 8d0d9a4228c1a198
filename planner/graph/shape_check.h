// planner/graph/shape_check.h -- finds shapes that an operator cannot have, whatever its arguments.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <string>

#include "planner/graph/graph.h"

namespace seqtile::planner {

/// Says which shapes of a node contradict its operator, and which result it must have: "shapes of node y contradict
/// each other: ...", or that its operator needs a tensor and has none. Empty where the shapes agree, and where the
/// operator, its form or its arguments are not known.
/// Requires: the inputs of `node` are in `graph`.
std::string contradiction(const Graph& graph, const Node& node);

}  // namespace seqtile::planner
