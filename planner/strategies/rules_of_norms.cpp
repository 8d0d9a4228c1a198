// planner/strategies/rules_of_norms.cpp -- the loops of norms; weights are parameters of the node, or later inputs.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "planner/graph/local_shape.h"
#include "planner/graph/reshape_maps.h"
#include "planner/strategies/streaming.h"

namespace seqtile::planner {
namespace {

constexpr StreamKernel kRmsNorm{"rms_norm", "rms_norm_backward"}, kLayerNorm{"layer_norm", "layer_norm_backward"},
    kBatchNorm{"batch_norm", "batch_norm_backward"};

/// Weight, bias and other tensors of a norm's parameters.
struct Weights {
  std::vector<Shape> shapes;
  bool are_inputs = false;

  /// Appends `dim`, the dimension that a factor runs over in each of them.
  void give(Factor& factor, int dim) const {
    std::vector<int>& dims = are_inputs ? factor.operands : factor.parameters;
    dims.insert(dims.end(), shapes.size(), dim);
  }
  bool are_all(const Shape& shape) const {
    return std::ranges::all_of(shapes, [&](const Shape& weight) { return weight == shape; });
  }
};

/// Returns false unless the result has the shape of the first input, and weights are either inputs or parameters.
bool read_weights(const RuleView& node, Weights& weights) {
  const size_t inputs = node.node().inputs.size();
  if (!has_tensors(node) || inputs == 0 || node.input_shape(0) != node.shape()) return false;
  weights.are_inputs = inputs > 1;
  for (size_t i = 1; i < inputs; ++i) weights.shapes.push_back(node.input_shape(i));
  for (const char* name : {"weight", "bias"})
    if (const Shape* parameter = node.parameter(name)) {
      if (weights.are_inputs) return false;
      weights.shapes.push_back(*parameter);
    }
  return true;
}

void add_weights(Rule& rule, const Weights& weights) {
  if (!weights.are_inputs) rule.parameters = weights.shapes;
}

/// The number of last dimensions that are normalised: the weights' rank, or the number of sizes among the arguments.
size_t normalised_dims(const RuleView& node, const Weights& weights) {
  if (!weights.shapes.empty()) return weights.shapes.front().size();
  size_t count = 0;
  const std::vector<std::string>& arguments = node.node().arguments;
  for (size_t i = 1; i < arguments.size() && number_of(arguments[i]); ++i) ++count;
  return count;
}

/// Dimensions of the results after the first: `dim` where the result has a statistic for each channel.
std::vector<int> of_others(const RuleView& node, int dim) {
  std::vector<int> dims;
  for (size_t i = 1; i < node.node().results.size(); ++i)
    dims.push_back(node.node().results[i].shape == Shape{node.shape()[1]} ? dim : kUntouched);
  return dims;
}

}  // namespace

/// The normalised dimensions, those of weight and bias, stay whole.
bool rule_norm(RuleView& node) {
  Weights weights;
  if (!read_weights(node, weights)) return false;
  const Shape& shape = node.shape();
  const size_t whole = normalised_dims(node, weights);
  if (whole == 0 || whole >= shape.size()) return false;
  if (!weights.are_all(Shape(shape.end() - static_cast<int>(whole), shape.end()))) return false;
  Rule rule = broadcast_rule(node, whole);
  add_weights(rule, weights);
  for (Factor& factor : rule.factors) {
    factor.operands = {factor.result};
    weights.give(factor, kNoDim);
  }
  const std::string name = operator_name(node.node());
  return add_streaming(node, rule, name == "RMSNorm" || name == "rms_norm" ? kRmsNorm : kLayerNorm);
}

/// x[batch, channels, ...]. In training, means and variances are those of the whole batch, so an all-reduce sums them
/// over the axes that cut the batch. The backward pass sums as many bytes: the gradients of weight and bias.
bool rule_batch_norm(RuleView& node) {
  Weights weights;
  if (!read_weights(node, weights) || node.shape().size() < 2) return false;
  if (!weights.are_all({node.shape()[1]})) return false;
  Rule rule{{{"batch", {0}, 0}, {"channels", {1}, 1}}};
  add_weights(rule, weights);
  weights.give(rule.factors[0], kNoDim);
  weights.give(rule.factors[1], 0);
  rule.factors[0].others = of_others(node, kUntouched);
  rule.factors[1].others = of_others(node, 0);
  for (const Cut& cut : node.cuts(rule)) {
    Work work = streaming_work(node, rule, cut, kBatchNorm);
    const double statistics =
        2 * static_cast<double>(local_size(node.shape()[1], node.mesh().devices(cut.axes[1]))) * node.element_bytes();
    for (int axis = 0; axis < node.mesh().num_axes && node.costs().trains; ++axis)
      if (cut.axes[0] >> axis & 1)
        work.communication += collective_seconds(node.mesh(), Collective::all_reduce, axis, statistics);
    node.add(rule, cut, work);
  }
  return true;
}

/// x[batch, channels, ...], normalised over groups of channels and all places, separately for each batch entry.
bool rule_group_norm(RuleView& node) {
  Weights weights;
  if (!read_weights(node, weights) || node.shape().size() < 2 || !weights.are_all({node.shape()[1]})) return false;
  Rule rule{{{"batch", {0}, 0}}};
  add_weights(rule, weights);
  weights.give(rule.factors[0], kNoDim);
  return add_streaming(node, rule, kLayerNorm);
}

/// x[batch, channels, ...], normalised separately for each channel of each batch entry.
bool rule_instance_norm(RuleView& node) {
  Weights weights;
  if (!read_weights(node, weights) || node.shape().size() < 3 || !weights.are_all({node.shape()[1]})) return false;
  Rule rule{{{"batch", {0}, 0}, {"channels", {1}, 1}}};
  add_weights(rule, weights);
  weights.give(rule.factors[0], kNoDim);
  weights.give(rule.factors[1], 0);
  return add_streaming(node, rule, kLayerNorm);
}

}  // namespace seqtile::planner
