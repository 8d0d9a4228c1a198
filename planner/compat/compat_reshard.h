// planner/compat/compat_reshard.h -- the known planner's path between two layouts, and its charge for the path.
// SPDX-License-Identifier: Apache-2.0
//
// The known planner's search is greedy over single steps: gather the innermost axis of a dimension, move an axis from
// one dimension to another, or cut a dimension by one more axis. A step goes to the neighbour with the least
// axes_difference() to the target; among equals the first one wins. The order of the neighbours depends on the order in
// which the source's dimensions were cut. The charge is elements times bytes. As in the known planner, every step adds
// the sum of all earlier steps once more.
#pragma once
#include <array>
#include <cstdint>
#include <span>

#include "planner/graph/mesh.h"

namespace seqtile::planner {

/// A layout, and the order in which its dimensions were cut.
class OrderedLayout {
 public:
  OrderedLayout() = default;
  /// Takes the dimensions to have been cut in ascending order.
  explicit OrderedLayout(Layout layout);

  Layout layout() const { return layout_; }
  /// The cut dimensions, in the order in which they were cut.
  std::span<const int8_t> cut_dims() const { return {dims_.data(), static_cast<size_t>(num_dims_)}; }
  /// Cuts `dim` by exactly `axes`. A dimension that was not cut before becomes the last one of the order.
  OrderedLayout with(int dim, AxisSet axes) const;

 private:
  Layout layout_;
  std::array<int8_t, kMaxAxes> dims_{};
  int num_dims_ = 0;
};

struct ReshardCost {
  double forward = 0, backward = 0, total = 0;
  int steps = 0;
};

/// Follows the search from `source` to `target`. Does not allocate.
/// Requires: the devices of its axes divide every cut dimension of both layouts; there are no partial sums.
ReshardCost compat_reshard(const Mesh& mesh, std::span<const int64_t> shape, int element_bytes,
                           const OrderedLayout& source, Layout target);

}  // namespace seqtile::planner
