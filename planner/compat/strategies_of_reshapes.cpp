// planner/compat/strategies_of_reshapes.cpp -- the known planner's strategies of operators that only reshape.
// SPDX-License-Identifier: Apache-2.0
//
// An operator has one strategy for each strategy of its first input. Dimensions that cannot stay cut are gathered
// first.
#include <functional>
#include <numeric>
#include <optional>

#include "planner/compat/strategy_list.h"
#include "planner/graph/reshape_maps.h"

namespace seqtile::planner {
namespace {

constexpr double kUnknownWork = 20;  // the known planner's charge where it does not count products

double bytes_of(const StrategyList& list, const TensorType& type, Layout layout) {
  return list.local(type.shape, layout) * static_cast<double>(type.element_bytes);
}

/// Memory of the input, its gradient and the result.
StrategyCost moving_cost(const StrategyList& list, Layout operand, Layout result) {
  StrategyCost cost{kUnknownWork, 0, 0};
  for (const TensorType& type : list.input(0).results) cost.memory += 2 * bytes_of(list, type, operand);
  for (const TensorType& type : list.node().results) cost.memory += bytes_of(list, type, result);
  return cost;
}

/// The layout of the same elements in another shape. Empty unless every cut dimension is the outermost of its group,
/// among dimensions that become one or that are made of one.
std::optional<Layout> viewed(Layout layout, const Shape& from, const Shape& to) {
  Layout result;
  const auto groups = view_groups(from, to);
  if (!groups) return std::nullopt;
  for (const ViewGroup& group : *groups) {
    for (size_t dim = group.from + 1; dim < group.from_end; ++dim)
      if (layout.axes_of(static_cast<int>(dim))) return std::nullopt;
    if (const AxisSet axes = group.from < from.size() ? layout.axes_of(static_cast<int>(group.from)) : 0) {
      if (group.to == group.to_end) return std::nullopt;
      result = result.with(static_cast<int>(group.to), axes);
    }
  }
  return result;
}

int64_t num_elements(const Shape& shape) {
  return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies());
}

/// Text for "get the 1 element from (a, a, )": the members of a tuple.
std::string members_name(const Node& tuple, Layout layout) {
  std::string name = "(";
  for (const TensorType& type : tuple.results) name += name_of(layout, type.shape) + ", ";
  return name + ")";
}

}  // namespace

bool add_view(StrategyList& list) {
  if (!list.has_inputs(1) || num_elements(list.input_shape(0)) != num_elements(list.shape())) return false;
  const Shape &from = list.input_shape(0), &to = list.shape();
  const std::vector<Strategy>& leaders = list.input(0).strategies;
  for (size_t i = 0; i < leaders.size(); ++i) {
    const Layout before = leaders[i].results.front();
    const auto after = viewed(before, from, to);
    StrategyCost cost = moving_cost(list, before, after.value_or(Layout()));
    if (!after) cost.communication = compat_gather_all(list.mesh(), from, before);
    list.add(
        name_of(before, from) + " -> " + (after ? name_of(*after, to) : "FULLY REPLICATED") + "_" + std::to_string(i),
        {before}, after.value_or(Layout()), cost);
  }
  return true;
}

bool add_flattened(StrategyList& list, bool averages) {
  if (!list.has_inputs(1)) return false;
  const Shape& from = list.input_shape(0);
  const std::vector<Strategy>& leaders = list.input(0).strategies;
  for (size_t i = 0; i < leaders.size(); ++i) {
    const Layout before = leaders[i].results.front();
    StrategyCost cost = moving_cost(list, before, {});
    cost.compute = averages ? 2 * list.local(from, before) : 0;
    cost.communication = compat_gather_all(list.mesh(), from, before);
    if (averages) cost.memory -= bytes_of(list, list.input(0).results.front(), before);
    list.add(name_of(before, from) + " -> FULLY REPLICATED_" + std::to_string(i), {before}, {}, cost);
  }
  return true;
}

bool add_permuted(StrategyList& list) {
  if (!list.has_inputs(1)) return false;
  const Shape &from = list.input_shape(0), &to = list.shape();
  const auto order = permutation_of(list.node(), static_cast<int>(from.size()));
  if (!order || to.size() != from.size()) return false;
  for (size_t dim = 0; dim < to.size(); ++dim)
    if (to[dim] != from[static_cast<size_t>((*order)[dim])]) return false;
  const std::vector<Strategy>& leaders = list.input(0).strategies;
  for (size_t i = 0; i < leaders.size(); ++i) {
    const Layout before = leaders[i].results.front();
    Layout after;
    for (size_t dim = 0; dim < to.size(); ++dim)
      after = after.with(static_cast<int>(dim), before.axes_of((*order)[dim]));
    list.add(name_of(before, from) + " -> " + name_of(after, to) + "_" + std::to_string(i), {before}, after,
             moving_cost(list, before, after));
  }
  return true;
}

/// The split dimension stays whole: the dimension in which the parts are smaller.
bool add_split(StrategyList& list) {
  const Node& node = list.node();
  if (node.inputs.size() != 1 || list.input(0).results.size() != 1 || node.results.empty()) return false;
  if (node.results.front().shape.size() != list.input_shape(0).size()) return false;
  const Shape &from = list.input_shape(0), &part = list.node().results.front().shape;
  const std::vector<Strategy>& leaders = list.input(0).strategies;
  for (size_t i = 0; i < leaders.size(); ++i) {
    Layout layout = leaders[i].results.front();
    for (size_t dim = 0; dim < from.size(); ++dim)
      if (part[dim] != from[dim]) layout = layout.with(static_cast<int>(dim), 0);
    list.add(name_of(layout, from) + "_" + std::to_string(i), {layout}, layout, moving_cost(list, layout, layout));
  }
  return true;
}

/// A member of a tuple, or a part of a tensor. A tensor stays whole along the dimensions in which the part is smaller.
bool add_getitem(StrategyList& list) {
  if (list.node().inputs.size() != 1 || list.node().results.size() != 1 || list.node().arguments.size() < 2)
    return false;
  const Node& from = list.input(0);
  if (from.results.empty()) return false;
  for (size_t i = 0; i < from.strategies.size(); ++i) {
    Layout layout = from.strategies[i].results.front();
    const std::string suffix = "_" + std::to_string(i);
    if (from.is_tuple) {
      list.add(name_of(layout, list.shape()) + " = get the " + list.node().arguments.at(1) + " element from " +
                   members_name(from, layout) + suffix,
               {layout}, layout, moving_cost(list, layout, layout));
      continue;
    }
    const Shape& whole = list.input_shape(0);
    for (size_t dim = 0; dim < whole.size(); ++dim)
      if (whole.size() != list.shape().size() || whole[dim] != list.shape()[dim])
        layout = layout.with(static_cast<int>(dim), 0);
    list.add(name_of(layout, list.shape()) + " = " + name_of(layout, whole) + suffix, {layout}, layout,
             moving_cost(list, layout, layout));
  }
  return true;
}

}  // namespace seqtile::planner
