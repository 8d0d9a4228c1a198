// planner/graph/mesh.h -- devices in rows and columns, and what sending along each axis costs.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <array>

#include "planner/graph/layout.h"

namespace seqtile::planner {

/// Axis a has shape[a] devices; a message of N units takes alpha[a] + beta[a] N.
struct Mesh {
  int num_axes = 0;
  std::array<int, kMaxAxes> shape{};
  std::array<double, kMaxAxes> alpha{}, beta{};

  int devices(AxisSet axes) const {
    int product = 1;
    for (int axis = 0; axis < num_axes; ++axis)
      if (axes >> axis & 1) product *= shape[static_cast<size_t>(axis)];
    return product;
  }
  AxisSet all() const { return (1u << num_axes) - 1; }
};

}  // namespace seqtile::planner
