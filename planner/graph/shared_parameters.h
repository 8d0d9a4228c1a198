// planner/graph/shared_parameters.h -- gives parameters that several operators read one node in the graph.
// SPDX-License-Identifier: Apache-2.0
//
// A get_attr node that several nodes read has one strategy, one memory and one gradient. The parameters of a module
// that is called twice become such nodes.
#pragma once
#include <map>

#include "planner/graph/graph.h"

namespace seqtile::planner {

/// Makes get_attr nodes, such as "layer.weight", of the parameters of modules that several nodes call (nodes with the
/// same `target`). The new nodes come before the first call. The calls read them as inputs, weight before bias.
/// Errors: invalid_argument where two calls of a module have different parameters.
void share_parameters(Graph& graph);

/// The number of elements of all parameters, each counted once. Buffers do not count.
double count_parameters(const Graph& graph);

}  // namespace seqtile::planner
