// planner/compat/compat_reshard.cpp -- see compat_reshard.h.
// SPDX-License-Identifier: Apache-2.0
#include "planner/compat/compat_reshard.h"

#include <algorithm>

namespace seqtile::planner {
namespace {

constexpr int kMostSteps = 21;

enum class Step { gather, all_to_all, shard };

struct Move {
  OrderedLayout to;
  Step step = Step::gather;
  int axis = 0;
  int difference = 1 << 20;
};

class Search {
 public:
  Search(const Mesh& mesh, std::span<const int64_t> shape, int element_bytes, Layout target)
      : mesh_(mesh), shape_(shape), element_bytes_(element_bytes), target_(target) {}

  ReshardCost run(OrderedLayout at) {
    ReshardCost cost;
    while (at.layout() != target_ && cost.steps < kMostSteps) {
      best_ = {};
      from_ = at;
      gathers();
      if (best_.difference > 0) moves();
      if (best_.difference > 0) shards();
      charge(cost);
      at = best_.to;
    }
    return cost;
  }

 private:
  int rank() const { return static_cast<int>(shape_.size()); }

  void gathers() {
    for (const int8_t dim : from_.cut_dims()) {
      const AxisSet axes = from_.layout().axes_of(dim);
      const int axis = last_axis(axes);
      consider(from_.with(dim, axes & ~(1u << axis)), Step::gather, axis, dim, dim);
    }
  }

  /// Moves axes between a dimension f and a later dimension b: from f to an uncut b, or from b to f. Each has at most
  /// one axis, and the axes of a dimension stay ascending.
  void moves() {
    for (int f = 0; f < rank(); ++f)
      for (int b = f + 1; b < rank(); ++b) {
        const AxisSet of_f = from_.layout().axes_of(f), of_b = from_.layout().axes_of(b);
        if ((of_f | of_b) == 0 || std::popcount(of_f) >= 2 || std::popcount(of_b) >= 2) continue;
        if (of_f && of_b && of_f >= of_b) continue;
        const bool forwards = of_b == 0;
        const AxisSet moved = forwards ? of_f : of_b;
        const OrderedLayout to = forwards ? from_.with(f, 0).with(b, moved) : from_.with(b, 0).with(f, of_f | moved);
        consider(to, Step::all_to_all, first_axis(moved), f, b);
      }
  }

  void shards() {
    for (int dim = 0; dim < rank(); ++dim) {
      const AxisSet axes = from_.layout().axes_of(dim);
      for (int axis = 0; axis < mesh_.num_axes; ++axis)
        if (!(from_.layout().cutting() >> axis & 1) && axis > last_axis(axes))
          consider(from_.with(dim, axes | 1u << axis), Step::shard, axis, dim, dim);
    }
  }

  /// Keeps the first of the nearest neighbours. No neighbour is nearer than one at the target.
  void consider(const OrderedLayout& to, Step step, int axis, int dim, int other) {
    if (best_.difference == 0 || !divides(to.layout(), dim) || !divides(to.layout(), other)) return;
    int difference = 0;
    for (int d = 0; d < rank(); ++d) difference += kDifferences[to.layout().axes_of(d)][target_.axes_of(d)];
    if (difference < best_.difference) best_ = {to, step, axis, difference};
  }

  bool divides(Layout layout, int dim) const {
    return shape_[static_cast<size_t>(dim)] % mesh_.devices(layout.axes_of(dim)) == 0;
  }

  void charge(ReshardCost& cost) const {
    double elements = 1;
    for (int d = 0; d < rank(); ++d)
      elements *= static_cast<double>(shape_[static_cast<size_t>(d)] / mesh_.devices(from_.layout().axes_of(d)));
    const auto axis = static_cast<size_t>(best_.axis);
    const double n = mesh_.shape[axis], alpha = mesh_.alpha[axis], beta = mesh_.beta[axis];
    constexpr double kCutting = 100;
    const double gathering = alpha + beta * (n - 1) / n * elements + 0.1;
    double forward = gathering, backward = kCutting;
    if (best_.step == Step::shard) std::swap(forward, backward);
    if (best_.step == Step::all_to_all)
      forward = backward = alpha + beta * (n - 1) / n / n * elements * (n / 2.0) + 0.001;
    forward *= element_bytes_;
    backward *= element_bytes_;
    // Rounded as in the known planner: the sum so far is added twice, one addition after the other.
    cost.forward += cost.forward + forward;
    cost.backward += cost.backward + backward;
    cost.total += cost.total + (forward + backward);
    ++cost.steps;
  }

  const Mesh& mesh_;
  const std::span<const int64_t> shape_;
  const int element_bytes_;
  const Layout target_;
  OrderedLayout from_;
  Move best_;
};

}  // namespace

OrderedLayout::OrderedLayout(Layout layout) {
  for (int dim = 0; dim < kMaxRank; ++dim)
    if (const AxisSet axes = layout.axes_of(dim)) *this = with(dim, axes);
}

OrderedLayout OrderedLayout::with(int dim, AxisSet axes) const {
  OrderedLayout result = *this;
  result.layout_ = layout_.with(dim, axes);
  const auto end = result.dims_.begin() + num_dims_, place = std::find(result.dims_.begin(), end, dim);
  if (axes && place == end) result.dims_[static_cast<size_t>(result.num_dims_++)] = static_cast<int8_t>(dim);
  if (!axes && place != end) {
    std::copy(place + 1, end, place);
    --result.num_dims_;
  }
  return result;
}

ReshardCost compat_reshard(const Mesh& mesh, std::span<const int64_t> shape, int element_bytes,
                           const OrderedLayout& source, Layout target) {
  return Search(mesh, shape, element_bytes, target).run(source);
}

}  // namespace seqtile::planner
