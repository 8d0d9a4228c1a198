// planner/prices/reshard_paths.cpp -- see reshard_paths.h.
// SPDX-License-Identifier: Apache-2.0
#include "planner/prices/reshard_paths.h"

#include <algorithm>
#include <limits>

#include "planner/graph/local_shape.h"

namespace seqtile::planner {
namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();

}  // namespace

double collective_seconds(const Mesh& mesh, Collective collective, int axis, double bytes) {
  const double n = mesh.shape[static_cast<size_t>(axis)], alpha = mesh.alpha[static_cast<size_t>(axis)],
               beta = mesh.beta[static_cast<size_t>(axis)];
  switch (collective) {
    case Collective::slice: return 0;
    case Collective::all_gather:
    case Collective::reduce_scatter: return (n - 1) * (alpha + bytes * beta);
    case Collective::all_reduce: return 2 * (n - 1) * (alpha + bytes / n * beta);
    case Collective::all_to_all: return (n - 1) * (alpha + bytes / n * beta);
  }
  return 0;
}

// The digits of a layout's number are the states of the axes: 0 copies, 1 partial sums, 2 + d parts of dimension d.
LayoutSpace::LayoutSpace(int num_axes, int rank) : num_axes_(num_axes), rank_(rank) {
  int count = 1;
  for (int axis = 0; axis < num_axes; ++axis) count *= rank + 2;
  for (int number = 0; number < count; ++number) {
    Layout layout;
    for (int axis = 0, rest = number; axis < num_axes; ++axis, rest /= rank + 2) {
      const int state = rest % (rank + 2);
      const AxisSet bit = 1u << axis;
      if (state == 1) layout = layout.with_partial(layout.partial() | bit);
      if (state >= 2) layout = layout.with(state - 2, layout.axes_of(state - 2) | bit);
    }
    layouts_.push_back(layout);
  }
  for (const Layout& layout : layouts_) add_steps(layout);
  first_step_.push_back(steps_.size());
}

int LayoutSpace::number_of(Layout layout) const {
  int number = 0;
  for (int axis = num_axes_; axis-- > 0;) {
    int state = layout.partial() >> axis & 1;
    for (int dim = 0; dim < rank_; ++dim)
      if (layout.axes_of(dim) >> axis & 1) state = dim + 2;
    number = number * (rank_ + 2) + state;
  }
  return number;
}

std::span<const ReshardStep> LayoutSpace::steps_from(int number) const {
  const auto i = static_cast<size_t>(number);
  return std::span(steps_).subspan(first_step_[i], first_step_[i + 1] - first_step_[i]);
}

void LayoutSpace::add_steps(Layout from) {
  first_step_.push_back(steps_.size());
  for (int axis = 0; axis < num_axes_; ++axis) {
    const AxisSet bit = 1u << axis;
    const auto add = [&](Collective collective, Layout to) {
      steps_.push_back({collective, static_cast<int8_t>(axis), number_of(to)});
    };
    const bool is_partial = from.partial() & bit;
    Layout without = from.with_partial(from.partial() & ~bit);  // the layout with copies along the axis
    bool is_inner = true, is_cut = false;
    for (int dim = 0; dim < rank_; ++dim) {
      if (!(from.axes_of(dim) & bit)) continue;
      is_cut = true;
      is_inner = last_axis(from.axes_of(dim)) == axis;
      without = from.with(dim, from.axes_of(dim) & ~bit);
    }
    if (!is_inner) continue;
    if (is_partial) add(Collective::all_reduce, without);
    if (is_cut) add(Collective::all_gather, without);
    const Collective to_cut = is_partial ? Collective::reduce_scatter
                              : is_cut   ? Collective::all_to_all
                                         : Collective::slice;
    for (int dim = 0; dim < rank_; ++dim)
      if (last_axis(without.axes_of(dim)) < axis && !(from.axes_of(dim) & bit))
        add(to_cut, without.with(dim, without.axes_of(dim) | bit));
  }
}

ReshardPaths::ReshardPaths(const Mesh& mesh, const LayoutSpace& layouts, std::span<const int64_t> shape,
                           int64_t element_bytes)
    : mesh_(mesh), layouts_(layouts) {
  const auto count = static_cast<size_t>(layouts.size());
  for (int number = 0; number < layouts.size(); ++number) {
    const Layout layout = layouts.layout(number);
    bytes_.push_back(can_part(mesh, shape, layout) ? local_bytes(mesh, shape, layout, element_bytes) : -1);
  }
  seconds_.assign(count * count, kInfinite);
  before_.assign(count * count, -1);
  is_known_.assign(count, 0);
  is_done_.assign(count, 0);
}

double ReshardPaths::step_seconds(int from, const ReshardStep& step) const {
  const bool is_after = step.collective == Collective::reduce_scatter;
  return collective_seconds(mesh_, step.collective, step.axis, bytes_[static_cast<size_t>(is_after ? step.to : from)]);
}

/// Dijkstra's algorithm over an array: there are few layouts.
void ReshardPaths::find_paths(int from) {
  is_known_[static_cast<size_t>(from)] = 1;
  std::ranges::fill(is_done_, char{0});
  const auto count = static_cast<size_t>(layouts_.size());
  double* row = &seconds_[static_cast<size_t>(from) * count];
  row[from] = 0;
  while (true) {
    size_t nearest = count;
    for (size_t i = 0; i < count; ++i)
      if (!is_done_[i] && row[i] < (nearest == count ? kInfinite : row[nearest])) nearest = i;
    if (nearest == count) return;
    is_done_[nearest] = 1;
    for (const ReshardStep& step : layouts_.steps_from(static_cast<int>(nearest))) {
      if (bytes_[static_cast<size_t>(step.to)] < 0) continue;
      const double whole = row[nearest] + step_seconds(static_cast<int>(nearest), step);
      if (whole >= row[step.to]) continue;
      row[step.to] = whole;
      before_[static_cast<size_t>(from) * count + static_cast<size_t>(step.to)] = static_cast<int>(nearest);
    }
  }
}

std::vector<ReshardStep> ReshardPaths::path(Layout from, Layout to) {
  const int start = layouts_.number_of(from);
  std::vector<ReshardStep> steps;
  seconds(from, to);
  for (int at = layouts_.number_of(to); at != start;) {
    const int before = before_[static_cast<size_t>(start * layouts_.size() + at)];
    steps.push_back(*std::ranges::find(layouts_.steps_from(before), at, &ReshardStep::to));
    at = before;
  }
  std::ranges::reverse(steps);
  return steps;
}

ReshardPaths& ReshardTables::of(const std::vector<int64_t>& shape, int64_t element_bytes) {
  const auto found = paths_.find({shape, element_bytes});
  if (found != paths_.end()) return found->second;
  const int rank = static_cast<int>(shape.size());
  const LayoutSpace& space = spaces_.try_emplace(rank, mesh_.num_axes, rank).first->second;
  return paths_.try_emplace({shape, element_bytes}, mesh_, space, shape, element_bytes).first->second;
}

}  // namespace seqtile::planner
