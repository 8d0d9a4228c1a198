// planner/graph/mesh.h -- a grid of devices, and the cost of sending along each of its axes.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <array>

#include "planner/graph/layout.h"

namespace seqtile::planner {

/// Axis a has shape[a] devices. A message of N units along it costs alpha[a] + beta[a] * N. Costs and units are those
/// of the planner: elements times bytes in compat, seconds and bytes in calibrated.
struct Mesh {
  int num_axes = 0;
  std::array<int, kMaxAxes> shape{};
  std::array<double, kMaxAxes> alpha{}, beta{};

  /// The number of devices of a group that spans `axes`.
  int devices(AxisSet axes) const {
    int product = 1;
    for (int axis = 0; axis < num_axes; ++axis)
      if (axes >> axis & 1) product *= shape[static_cast<size_t>(axis)];
    return product;
  }
  AxisSet all() const { return (1u << num_axes) - 1; }
};

}  // namespace seqtile::planner
