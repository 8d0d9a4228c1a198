// planner/compat/compat_costs.h -- what the known planner charges inside an operator, and what a device holds.
// SPDX-License-Identifier: Apache-2.0
//
// Elements times bytes, as in compat_reshard.h; several axes send as one, of all their devices.
#pragma once
#include "planner/graph/graph.h"

namespace seqtile::planner {

constexpr int kCompatBytes = 4;  ///< of an element of an activation or a weight, whatever its format is

/// Whether every dimension has the same number of elements on each device.
bool divides(const Mesh& mesh, const std::vector<int64_t>& shape, Layout layout);
/// Elements that a device has.
double local_elements(const Mesh& mesh, const std::vector<int64_t>& shape, Layout layout);

/// The sum of `elements` over the devices of some axes; nothing where there are none.
double compat_all_reduce(const Mesh& mesh, AxisSet axes, double elements);
/// A result that every device has whole: gathered dimension after dimension, the inner axis first, and cut again in the
/// backward pass.
double compat_gather_all(const Mesh& mesh, const std::vector<int64_t>& shape, Layout layout);

}  // namespace seqtile::planner
