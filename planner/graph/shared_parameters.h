// planner/graph/shared_parameters.h -- parameters that several operators read have one place in a plan.
// SPDX-License-Identifier: Apache-2.0
//
// A get_attr node that several nodes read has one strategy, one memory and one gradient. So has a module that is called
// twice, once its parameters are such nodes.
#pragma once
#include <map>

#include "planner/graph/graph.h"

namespace seqtile::planner {

/// Makes get_attr nodes, "layer.weight", of the parameters of modules that are called more than once (nodes with the
/// same `target`), in front of the first call; the calls have them as inputs, weight before bias. Errors:
/// invalid_argument where two calls of a module have different parameters.
void share_parameters(Graph& graph);

/// Elements of all parameters, buffers excepted: each parameter once.
double count_parameters(const Graph& graph);

}  // namespace seqtile::planner
