// planner/compat/strategies_of_rows.cpp -- the known planner's strategies of operators on elements, rows or windows.
// SPDX-License-Identifier: Apache-2.0
#include <numeric>

#include "planner/compat/strategy_list.h"

namespace seqtile::planner {
namespace {

std::vector<int> first_dims(size_t count) {
  std::vector<int> dims(count);
  std::iota(dims.begin(), dims.end(), 0);
  return dims;
}

/// The layout of an input for a layout of the result. Dimensions that the input lacks, or has one element of, are not
/// cut.
Layout broadcast(Layout result, const Shape& of_result, const Shape& input) {
  Layout layout;
  const size_t missing = of_result.size() - input.size();
  for (size_t dim = 0; dim < input.size(); ++dim)
    if (input[dim] == of_result[dim + missing])
      layout = layout.with(static_cast<int>(dim), result.axes_of(static_cast<int>(dim + missing)));
  return layout;
}

/// Whether every input broadcasts to the result's shape.
bool broadcasts(const StrategyList& list) {
  if (!list.has_inputs(list.node().inputs.size()) || list.node().inputs.empty()) return false;
  const Shape& shape = list.shape();
  for (size_t i = 0; i < list.node().inputs.size(); ++i) {
    const Shape& input = list.input_shape(i);
    if (input.size() > shape.size()) return false;
    for (size_t dim = 0; dim < input.size(); ++dim)
      if (input[dim] != 1 && input[dim] != shape[dim + shape.size() - input.size()]) return false;
  }
  return true;
}

bool keeps_shape(const StrategyList& list) { return list.has_inputs(1) && list.input_shape(0) == list.shape(); }

}  // namespace

bool add_binary(StrategyList& list) {
  if (!broadcasts(list)) return false;
  const Shape& shape = list.shape();
  for (const Layout& layout : all_layouts(list.mesh(), first_dims(shape.size()), true)) {
    const double elements = list.local(shape, layout);
    StrategyCost cost{3 * elements, 0, elements * kCompatBytes};
    std::vector<Layout> operands;
    for (size_t i = 0; i < list.node().inputs.size(); ++i) {
      operands.push_back(broadcast(layout, shape, list.input_shape(i)));
      const bool is_weight = list.input(i).op == "get_attr";  // a weight is held and has a gradient
      cost.memory += (is_weight ? 3 : 1) * list.local(list.input_shape(i), operands.back()) * kCompatBytes;
    }
    const std::string name = name_of(layout, shape);
    list.add(name + " = " + name + " <binary-elementwise-op> " + name, operands, layout, cost);
  }
  return true;
}

bool add_where(StrategyList& list) {
  if (!broadcasts(list)) return false;
  constexpr StrategyCost kUnknownWork{20, 0, 0};
  const Shape& shape = list.shape();
  for (const Layout& layout : all_layouts(list.mesh(), first_dims(shape.size()), false)) {
    StrategyCost cost = kUnknownWork;
    const double elements = list.local(shape, layout);
    cost.memory = elements * static_cast<double>(list.node().results.front().element_bytes);
    std::string name = name_of(layout, shape) + " =";
    std::vector<Layout> operands;
    for (size_t i = 0; i < list.node().inputs.size(); ++i) {
      const TensorType& type = list.input(i).results.front();
      operands.push_back(broadcast(layout, shape, type.shape));
      // An operand counts at the result's size, with a gradient.
      cost.memory += 2 * elements * static_cast<double>(type.element_bytes);
      name += (i ? " x " : " ") + name_of(operands.back(), type.shape);
    }
    list.add(name, operands, layout, cost);
  }
  return true;
}

namespace {

/// Layouts of batch and channels, in the known planner's order.
std::vector<Layout> batch_norm_layouts(const Mesh& mesh) {
  constexpr std::pair<AxisSet, AxisSet> kCuts[] = {{0, 1}, {0, 2}, {0, 0}, {0, 3}, {1, 0},
                                                   {2, 0}, {1, 2}, {2, 1}, {3, 0}};
  constexpr int kDims[] = {0, 1};
  if (mesh.num_axes != 2) return all_layouts(mesh, kDims, false);
  std::vector<Layout> layouts;
  for (const auto& [batch, channels] : kCuts) layouts.push_back(Layout().with(0, batch).with(1, channels));
  return layouts;
}

}  // namespace

/// x[batch, channels, ...]. Statistics run over all dimensions but the channels; the known planner does not charge for
/// exchanging them.
bool add_batch_norm(StrategyList& list) {
  constexpr double kProducts = 5;
  if (!keeps_shape(list) || list.shape().size() < 2) return false;
  const Shape &shape = list.shape(), channels{shape.at(1)};
  for (const Layout& layout : batch_norm_layouts(list.mesh())) {
    const AxisSet batch = layout.axes_of(0);
    const double elements = list.local(shape, layout),
                 of_channels = list.local(channels, Layout().with(0, layout.axes_of(1)));
    const std::string n = axes_name(layout.axes_of(1)), cut = axes_name(batch) + n;
    list.add(cut + " = " + cut + " x " + n + (batch ? " WITH SYNC_BN" : ""), {layout}, layout,
             {2 * kProducts * elements, 0, (3 * elements + 6 * of_channels) * kCompatBytes});
  }
  return true;
}

/// Rows stay whole. Every device that has rows contributes to the gradients of weight and bias.
bool add_layer_norm(StrategyList& list) {
  constexpr double kProducts = 5;
  const Shape* parameter = list.parameter("weight");
  if (!keeps_shape(list) || !parameter || parameter->size() >= list.shape().size()) return false;
  const Shape &shape = list.shape(), &weight = *parameter;
  const auto row_dims = first_dims(shape.size() - weight.size());
  for (const Layout& layout : all_layouts(list.mesh(), row_dims, false)) {
    const double elements = list.local(shape, layout), weights = list.local(weight, {});
    const double statistics =
        // The known planner counts the statistics this way.
        static_cast<double>(shape.front()) / list.mesh().devices(layout.axes_of(0)) * 2;
    StrategyCost cost{2 * kProducts * elements, 2 * compat_all_reduce(list.mesh(), layout.cutting(), weights),
                      (3 * elements + 8 * weights + 2 * statistics) * kCompatBytes};
    const std::string name = name_of(layout, shape);
    list.add(layout == Layout() ? "RR = RR x R" : name + " = " + name + " x " + name_of({}, weight), {layout}, layout,
             cost);
  }
  return true;
}

/// indices[...], weight[rows, columns]. The first dimension of the indices and the columns are cut.
bool add_embedding(StrategyList& list) {
  const bool is_input = list.has_inputs(2);
  if (!is_input && !(list.has_inputs(1) && list.parameter("weight"))) return false;
  const Shape &shape = list.shape(), &weight = is_input ? list.input_shape(1) : *list.parameter("weight");
  if (weight.size() != 2 || shape.size() < 2 || weight[1] != shape.back()) return false;
  if (list.input_shape(0).size() + 1 != shape.size()) return false;
  const int last = static_cast<int>(shape.size()) - 1;
  const int dims[] = {0, last};
  for (const Layout& layout : all_layouts(list.mesh(), dims, false)) {
    const Layout indices = layout.with(last, 0), of_weight = Layout().with(1, layout.axes_of(last));
    const double elements = list.local(shape, layout), weights = list.local(weight, of_weight);
    const std::string m = axes_name(layout.axes_of(0)), n = axes_name(layout.axes_of(last));
    list.add(m + n + " = " + m + " x R" + n, {indices, of_weight}, layout,
             {elements + weights, compat_all_reduce(list.mesh(), layout.axes_of(0), weights),
              (elements + 4 * weights) * kCompatBytes});
  }
  return true;
}

/// Windows run over all but the first two dimensions. The memory includes the place of the largest element.
bool add_pool(StrategyList& list) {
  if (!list.has_inputs(1)) return false;
  const Shape &shape = list.shape(), &input = list.input_shape(0);
  if (shape.size() < 3 || input.size() != shape.size() || input[0] != shape[0] || input[1] != shape[1]) return false;
  const int dims[] = {0, 1};
  for (const Layout& layout : all_layouts(list.mesh(), dims, false)) {
    const double read = list.local(input, layout), written = list.local(shape, layout);
    const std::string name = name_of(layout, shape);
    list.add(name + " = " + name, {layout}, layout, {2 * read, 0, (2 * read + written) * kCompatBytes});
  }
  return true;
}

bool add_unary(StrategyList& list, const UnaryWork& work) {
  if (!keeps_shape(list)) return false;
  const Shape& shape = list.shape();
  const int last = static_cast<int>(shape.size()) - 1;
  const std::vector<Strategy>& leaders = list.input(0).strategies;
  for (size_t i = 0; i < leaders.size(); ++i) {
    Layout layout = leaders[i].results.front();
    if (work.needs_row && last >= 0) layout = layout.with(last, 0);
    const double elements = list.local(shape, layout);
    const std::string name = name_of(layout, shape);
    list.add(name + " -> " + name + "_" + std::to_string(i), {layout}, layout,
             {(work.forward + work.backward) * elements, 0, work.copies * elements * kCompatBytes});
  }
  return true;
}

}  // namespace seqtile::planner
