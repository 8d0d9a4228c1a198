// planner/strategies/operator_rule.cpp -- see operator_rule.h.
// SPDX-License-Identifier: Apache-2.0
#include "planner/strategies/operator_rule.h"

#include <algorithm>

#include "planner/graph/local_shape.h"

namespace seqtile::planner {
namespace {

/// Cuts `dim` by the axes. kNoDim makes the axes those of partial sums; kUntouched leaves the layout alone.
Layout cut_or_partial(Layout layout, int dim, AxisSet axes) {
  if (dim == kUntouched) return layout;
  return dim >= 0 ? layout.with(dim, layout.axes_of(dim) | axes) : layout.with_partial(layout.partial() | axes);
}

bool is_equal_part(const Mesh& mesh, const Shape& shape, int dim, AxisSet axes) {
  return dim < 0 || shape[static_cast<size_t>(dim)] % mesh.devices(axes) == 0;
}

int result_dim(const Factor& factor, size_t member) {
  return member == 0 || factor.others.empty() ? factor.result : factor.others[member - 1];
}

bool is_innermost(Layout layout, int dim, AxisSet axes) { return last_axis(layout.axes_of(dim)) == last_axis(axes); }

std::string name_of(const Rule& rule, const Cut& cut) {
  std::string name;
  for (size_t f = 0; f < rule.factors.size(); ++f)
    if (cut.axes[f]) name += (name.empty() ? "" : ", ") + axes_name(cut.axes[f]) + " " + rule.factors[f].name;
  return name.empty() ? "whole" : name;
}

}  // namespace

double CalibratedCosts::fused(double communication, double compute) const {
  const double both = std::min(communication, compute);
  return communication - both + std::min(overlap_slowdown - 1, 1.0) * both + launch_s;
}

RuleView::RuleView(const Graph& graph, Node& node, const CalibratedCosts& costs, ReshardTables& paths,
                   const std::vector<char>& has_gradient)
    : NodeView(graph, node), costs_(costs), paths_(paths), has_gradient_(has_gradient) {
  node.strategies.clear();
}

bool RuleView::has_gradient(size_t input) const {
  return costs_.trains && has_gradient_[static_cast<size_t>(node().inputs[input])];
}

bool RuleView::has_any_gradient() const {
  for (size_t i = 0; i < node().inputs.size(); ++i)
    if (has_gradient(i)) return true;
  return false;
}

Layout RuleView::operand(const Rule& rule, const Cut& cut, size_t input) const {
  Layout layout;
  for (size_t f = 0; f < rule.factors.size(); ++f)
    layout = cut_or_partial(layout, rule.factors[f].operands[input], cut.axes[f]);
  return layout;
}

Layout RuleView::parameter_layout(const Rule& rule, const Cut& cut, size_t parameter) const {
  Layout layout;
  for (size_t f = 0; f < rule.factors.size(); ++f)
    layout = cut_or_partial(layout, rule.factors[f].parameters[parameter], cut.axes[f]);
  return layout;
}

Layout RuleView::result(const Rule& rule, const Cut& cut, size_t member) const {
  Layout layout;
  for (size_t f = 0; f < rule.factors.size(); ++f)
    layout = cut_or_partial(layout, result_dim(rule.factors[f], member), cut.axes[f]);
  return layout;
}

bool RuleView::can_fuse(const Rule& rule, const Cut& cut) const {
  for (size_t f = 0; f < rule.factors.size(); ++f) {
    const Factor& factor = rule.factors[f];
    if (factor.fused_dim < 0 || !cut.axes[f]) continue;
    for (const auto& [dim, layout] :
         {std::pair(factor.operands[0], operand(rule, cut, 0)), std::pair(factor.result, result(rule, cut))})
      if (dim == factor.fused_dim && !is_innermost(layout, dim, cut.axes[f])) return false;
  }
  return true;
}

bool RuleView::can_cut(const Rule& rule, const Cut& cut) const {
  if (!can_fuse(rule, cut)) return false;
  const auto is_good = [&](const Shape& shape, Layout layout, auto dim_of) {
    if (!can_part(mesh(), shape, layout)) return false;
    for (size_t f = 0; f < rule.factors.size(); ++f) {
      const Factor& factor = rule.factors[f];
      if (!cut.axes[f]) continue;
      if (factor.is_even && !is_equal_part(mesh(), shape, dim_of(factor), cut.axes[f])) return false;
    }
    return true;
  };
  for (size_t i = 0; i < node().inputs.size(); ++i)
    for (const TensorType& type : input(i).results)
      if (!is_good(type.shape, operand(rule, cut, i), [&](const Factor& f) { return f.operands[i]; })) return false;
  for (size_t i = 0; i < rule.parameters.size(); ++i)
    if (!is_good(rule.parameters[i], parameter_layout(rule, cut, i), [&](const Factor& f) { return f.parameters[i]; }))
      return false;
  for (size_t i = 0; i < node().results.size(); ++i)
    if (!is_good(node().results[i].shape, result(rule, cut, i), [&](const Factor& f) { return result_dim(f, i); }))
      return false;
  return true;
}

std::vector<Cut> RuleView::cuts(const Rule& rule) const {
  std::vector<Cut> cuts{{}};
  const auto has_fused = [&](const Cut& cut) {
    for (size_t f = 0; f < rule.factors.size(); ++f)
      if (rule.factors[f].fused_dim >= 0 && cut.axes[f]) return true;
    return false;
  };
  for (int axis = 0; axis < mesh().num_axes; ++axis) {
    if (mesh().shape[static_cast<size_t>(axis)] == 1) continue;
    const size_t count = cuts.size();
    for (size_t f = 0; f < rule.factors.size(); ++f)
      for (size_t i = 0; i < count; ++i) {
        if (rule.factors[f].fused_dim >= 0 && has_fused(cuts[i])) continue;
        Cut cut = cuts[i];
        cut.axes[f] |= 1u << axis;
        cuts.push_back(cut);
      }
  }
  std::erase_if(cuts, [&](const Cut& cut) { return !can_cut(rule, cut); });
  return cuts;
}

double RuleView::result_bytes(const Rule& rule, const Cut& cut) const {
  double bytes = 0;
  for (size_t i = 0; i < node().results.size(); ++i)
    bytes += local_bytes(mesh(), node().results[i].shape, result(rule, cut, i), node().results[i].element_bytes);
  return bytes;
}

double RuleView::parameter_bytes(const Rule& rule, const Cut& cut) const {
  double bytes = 0;
  for (size_t i = 0; i < rule.parameters.size(); ++i)
    bytes +=
        local_bytes(mesh(), rule.parameters[i], parameter_layout(rule, cut, i), node().results.front().element_bytes);
  return bytes;
}

double RuleView::traffic(const Rule& rule, const Cut& cut) const {
  double bytes = result_bytes(rule, cut) + parameter_bytes(rule, cut);
  for (size_t i = 0; i < node().inputs.size(); ++i)
    for (const TensorType& type : input(i).results)
      bytes += local_bytes(mesh(), type.shape, operand(rule, cut, i), type.element_bytes);
  return bytes;
}

double RuleView::time(const KernelCall& call, Work& work) const {
  const KernelTime time = costs_.kernel_time(call);
  ++work.kernels;
  work.measured += time.is_measured;
  return time.seconds;
}

bool RuleView::sums_gradients(const Rule& rule, const Cut& cut) const {
  for (size_t i = 0; i < rule.parameters.size(); ++i)
    if (parameter_layout(rule, cut, i).partial()) return true;
  return false;
}

RuleView::Held RuleView::held_whole(const Rule& rule, const Cut& cut) const {
  Held held{parameter_bytes(rule, cut), 0};
  for (size_t i = 0; i < rule.parameters.size(); ++i) {
    const Layout gradient = parameter_layout(rule, cut, i), used = gradient.with_partial(0);
    held.layouts.push_back(used);
    if (!costs_.trains || !gradient.partial()) continue;
    held.seconds += paths_.of(rule.parameters[i], node().results.front().element_bytes).seconds(gradient, used);
  }
  return held;
}

/// Holds each parameter cut along the dimension that is the cheapest to gather twice and to scatter gradient sums to.
RuleView::Held RuleView::held_in_parts(const Rule& rule, const Cut& cut) const {
  Held held;
  for (size_t i = 0; i < rule.parameters.size(); ++i) {
    const Shape& shape = rule.parameters[i];
    const int64_t element_bytes = node().results.front().element_bytes;
    const Layout gradient = parameter_layout(rule, cut, i), used = gradient.with_partial(0);
    ReshardPaths& paths = paths_.of(shape, element_bytes);
    // The parameter stays whole if no dimension has a part for each device.
    Held best{local_bytes(mesh(), shape, used, element_bytes), paths.seconds(gradient, used), {used}};
    bool is_whole = true;
    for (int dim = 0; dim < static_cast<int>(shape.size()); ++dim) {
      const Layout part = used.with(dim, used.axes_of(dim) | gradient.partial());
      if (!can_part(mesh(), shape, part)) continue;
      const double seconds = paths.seconds(gradient, part) + 2 * paths.seconds(part, used);
      if (is_whole || seconds < best.seconds) best = {local_bytes(mesh(), shape, part, element_bytes), seconds, {part}};
      is_whole = false;
    }
    held.bytes += best.bytes, held.seconds += best.seconds;
    held.layouts.push_back(best.layouts.front());
  }
  return held;
}

std::map<std::string, Layout> RuleView::by_name(const Rule& rule, const std::vector<Layout>& layouts) const {
  std::map<std::string, Layout> result;
  for (const auto& [name, shape] : node().parameters)
    if (const auto at = std::ranges::find(rule.parameters, shape); at != rule.parameters.end())
      result[name] = layouts[static_cast<size_t>(at - rule.parameters.begin())];
  return result;
}

void RuleView::add(const Rule& rule, const Cut& cut, const Work& work) {
  add(rule, cut, work, held_whole(rule, cut), "");
  if (costs_.trains && costs_.cuts_parameters && sums_gradients(rule, cut))
    add(rule, cut, work, held_in_parts(rule, cut), ", parameters in parts");
}

void RuleView::add(const Rule& rule, const Cut& cut, const Work& work, const Held& held, const char* suffix) {
  Strategy strategy;
  strategy.name = name_of(rule, cut) + suffix;
  strategy.compute = work.forward + (costs_.trains ? work.backward : 0);
  strategy.communication = work.communication + held.seconds;
  strategy.memory = held.bytes;
  if (costs_.trains && !rule.parameters.empty()) {
    strategy.memory *= 1 + costs_.state_bytes / element_bytes();
    strategy.gradient = held.bytes;
  }
  // The result of a get_attr that is not trained is held all the time, as a parameter is.
  if (work.keeps_result && !is_view(node()))
    (node().op == "get_attr" ? strategy.memory : strategy.activation) += result_bytes(rule, cut);
  strategy.kernels = work.kernels;
  strategy.measured = work.measured;
  for (size_t i = 0; i < node().inputs.size(); ++i)
    strategy.operands.emplace_back(input(i).results.size(), operand(rule, cut, i));
  for (size_t i = 0; i < node().results.size(); ++i) strategy.results.push_back(result(rule, cut, i));
  strategy.parameters = by_name(rule, held.layouts);
  mutable_node().strategies.push_back(std::move(strategy));
}

bool has_tensors(const NodeView& node) {
  for (size_t i = 0; i < node.node().inputs.size(); ++i)
    if (node.input(i).results.size() != 1) return false;
  return !node.node().results.empty();
}

const char* dim_name(size_t dim) {
  static constexpr const char* kNames[kMaxRank] = {"dim 0", "dim 1", "dim 2", "dim 3",
                                                   "dim 4", "dim 5", "dim 6", "dim 7"};
  return kNames[dim];
}

Rule broadcast_rule(const NodeView& node, size_t whole) {
  Rule rule;
  const Shape& shape = node.shape();
  for (size_t dim = 0; dim + whole < shape.size(); ++dim) {
    if (shape[dim] == 1) continue;
    Factor factor{dim_name(dim), {}, static_cast<int>(dim)};
    for (size_t i = 0; i < node.node().inputs.size(); ++i) {
      const Shape& input = node.input_shape(i);
      const size_t missing = shape.size() - input.size();
      const bool has_it = dim >= missing && input[dim - missing] == shape[dim];
      factor.operands.push_back(has_it ? static_cast<int>(dim - missing) : kNoDim);
    }
    rule.factors.push_back(std::move(factor));
  }
  return rule;
}

}  // namespace seqtile::planner
