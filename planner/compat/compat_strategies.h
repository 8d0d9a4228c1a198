// planner/compat/compat_strategies.h -- the ways to compute each operator that the known planner tries.
// SPDX-License-Identifier: Apache-2.0
//
// In its order, under its names and at its prices, for meshes of two axes; for others in the order of the axes. Where a
// dimension is not divisible by the devices that would cut it, a way is left out. Operators that only reshape, or work
// element by element, have one way for each of their first input's.
#pragma once
#include "planner/graph/node_view.h"

namespace seqtile::planner {

/// Replaces the strategies of all nodes. Operators of which the known planner knows nothing have the ways of
/// compat_rules.h, or, where there is no rule either, one of whole copies; returns these. A node that does not have one
/// way for each of its first input's merges no more.
UnknownOperators generate_compat_strategies(Graph& graph);

}  // namespace seqtile::planner
