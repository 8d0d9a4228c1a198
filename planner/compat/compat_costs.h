// planner/compat/compat_costs.h -- the known planner's charges for collectives inside an operator, and a device's part.
// SPDX-License-Identifier: Apache-2.0
//
// Charges are elements times bytes, as in compat_reshard.h. An all-reduce over several axes is charged as one ring over
// all their devices.
#pragma once
#include "planner/graph/graph.h"

namespace seqtile::planner {

/// Bytes that are charged for an element of an activation or a weight, whatever its format.
constexpr int kCompatBytes = 4;

/// Whether the devices that cut a dimension divide its size, for every dimension.
bool divides(const Mesh& mesh, const std::vector<int64_t>& shape, Layout layout);
/// The number of elements of one device's part of the tensor.
double local_elements(const Mesh& mesh, const std::vector<int64_t>& shape, Layout layout);

/// Charge for the all-reduce of `elements` over the devices of `axes`. 0 where `axes` is empty.
double compat_all_reduce(const Mesh& mesh, AxisSet axes, double elements);
/// Charge for gathering a result until every device has all of it. The gathers go dimension by dimension, innermost
/// axis first. The backward pass cuts the gradient again.
double compat_gather_all(const Mesh& mesh, const std::vector<int64_t>& shape, Layout layout);

}  // namespace seqtile::planner
