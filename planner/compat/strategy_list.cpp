// planner/compat/strategy_list.cpp -- see strategy_list.h.
// SPDX-License-Identifier: Apache-2.0
#include "planner/compat/strategy_list.h"

#include <algorithm>

namespace seqtile::planner {

void StrategyList::add(std::string name, std::vector<Layout> operands, Layout result, const StrategyCost& cost) {
  Node& node = mutable_node();
  operands.resize(node.inputs.size());
  for (const TensorType& type : node.results)
    if (!fits(type.shape, result)) return;
  Strategy strategy{std::move(name), {}, {}, cost.compute, cost.communication, cost.memory};
  for (size_t i = 0; i < operands.size(); ++i) {
    for (const TensorType& type : input(i).results)
      if (!fits(type.shape, operands[i])) return;
    strategy.operands.emplace_back(input(i).results.size(), operands[i]);
  }
  if (std::ranges::find(node.strategies, strategy.name, &Strategy::name) != node.strategies.end()) return;
  strategy.results.assign(node.results.size(), result);
  node.strategies.push_back(std::move(strategy));
}

std::string name_of(Layout layout, const Shape& shape) { return layout_name(layout, static_cast<int>(shape.size())); }

namespace {

/// All layouts in which each axis cuts one of the dimensions, or none.
std::vector<Layout> layouts_by_axis(const Mesh& mesh, std::span<const int> dims) {
  std::vector<Layout> layouts{{}};
  for (int axis = 0; axis < mesh.num_axes; ++axis) {
    const size_t count = layouts.size();
    for (const int dim : dims)
      for (size_t i = 0; i < count; ++i) layouts.push_back(layouts[i].with(dim, layouts[i].axes_of(dim) | 1u << axis));
  }
  return layouts;
}

}  // namespace

std::vector<Layout> all_layouts(const Mesh& mesh, std::span<const int> dims, bool pairs_first) {
  if (mesh.num_axes != 2) return layouts_by_axis(mesh, dims);
  std::vector<Layout> alone, pairs, layouts;
  for (const AxisSet axis : {1u, 2u})
    for (const int dim : dims) alone.push_back(Layout().with(dim, axis));
  for (size_t a = 0; a < dims.size(); ++a)
    for (size_t b = a + 1; b < dims.size(); ++b)
      for (const AxisSet axis : {1u, 2u}) pairs.push_back(Layout().with(dims[a], axis).with(dims[b], 3 - axis));
  for (const int dim : dims) pairs.push_back(Layout().with(dim, 3));
  const auto append = [&](const std::vector<Layout>& more) { layouts.insert(layouts.end(), more.begin(), more.end()); };
  append(pairs_first ? pairs : alone);
  append(pairs_first ? alone : pairs);
  layouts.emplace_back();
  return layouts;
}

}  // namespace seqtile::planner
