// planner/graph/local_shape.h -- the part of a tensor that one device has.
// SPDX-License-Identifier: Apache-2.0
//
// Parts need not be equal: the first devices have the larger ones, and prices are those of the largest part. If several
// axes cut one dimension, a higher axis cuts the parts of a lower one.
#pragma once
#include <span>

#include "planner/graph/mesh.h"

namespace seqtile::planner {

/// Elements of the largest of `devices` parts of a dimension.
constexpr int64_t local_size(int64_t size, int devices) { return (size + devices - 1) / devices; }
/// Whether every one of `devices` devices gets a part.
constexpr bool can_part(int64_t size, int devices) { return (devices - 1) * local_size(size, devices) < size; }
static_assert(can_part(10, 4) && can_part(3, 2) && !can_part(3, 4) && !can_part(5, 4));

/// Whether the layout gives every device a part of every cut dimension.
inline bool can_part(const Mesh& mesh, std::span<const int64_t> shape, Layout layout) {
  for (size_t dim = 0; dim < shape.size(); ++dim)
    if (!can_part(shape[dim], mesh.devices(layout.axes_of(static_cast<int>(dim))))) return false;
  return true;
}

/// Bytes of the largest part.
inline double local_bytes(const Mesh& mesh, std::span<const int64_t> shape, Layout layout, int64_t element_bytes) {
  double bytes = static_cast<double>(element_bytes);
  for (size_t dim = 0; dim < shape.size(); ++dim)
    bytes *= static_cast<double>(local_size(shape[dim], mesh.devices(layout.axes_of(static_cast<int>(dim)))));
  return bytes;
}

}  // namespace seqtile::planner
