// planner/compat/compat_strategies.h -- the strategies that the known planner tries for each operator.
// SPDX-License-Identifier: Apache-2.0
//
// Names, prices and order are the known planner's for meshes of two axes; on other meshes the order is that of the
// axes. A strategy is left out where a dimension is not divisible by the devices that would cut it. An operator that
// only reshapes, or works element by element, has one strategy for each strategy of its first input.
#pragma once
#include "planner/graph/node_view.h"

namespace seqtile::planner {

/// Replaces the strategies of all nodes. An operator that the known planner does not know has the strategies of
/// compat_rules.h or, where no rule is known either, one strategy of whole copies. A node without one strategy for each
/// strategy of its first input stops merging. Returns the operators that have no rule.
UnknownOperators generate_compat_strategies(Graph& graph);

}  // namespace seqtile::planner
