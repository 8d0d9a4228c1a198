// planner/compat/compat_reshard.h -- the path between two layouts that the known planner takes, and what it charges.
// SPDX-License-Identifier: Apache-2.0
//
// Its search is greedy over single steps: to gather a dimension's innermost axis, to move an axis from one dimension to
// another, to cut a dimension by one more axis. It takes the first of the neighbours that are nearest by
// axes_difference(), in an order that depends on the order in which the source's dimensions were cut. Costs are charged
// as it charges them, in elements times bytes: what was paid before counts twice at every further step.
#pragma once
#include <array>
#include <cstdint>
#include <span>

#include "planner/graph/mesh.h"

namespace seqtile::planner {

/// A layout with the order in which its dimensions were cut.
class OrderedLayout {
 public:
  OrderedLayout() = default;
  /// In the order of the dimensions.
  explicit OrderedLayout(Layout layout);

  Layout layout() const { return layout_; }
  std::span<const int8_t> cut_dims() const { return {dims_.data(), static_cast<size_t>(num_dims_)}; }
  /// A dimension that was not cut before becomes the last one.
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

/// No allocation. Requires: every cut dimension of both is divisible by its axes' devices, no partial sums.
ReshardCost compat_reshard(const Mesh& mesh, std::span<const int64_t> shape, int element_bytes,
                           const OrderedLayout& source, Layout target);

}  // namespace seqtile::planner
