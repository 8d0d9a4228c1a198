// planner/strategies/rules_of_convolutions.cpp -- the loops of convolutions, including grouped and transposed ones.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <functional>
#include <numeric>
#include <span>

#include "planner/graph/local_shape.h"
#include "planner/strategies/operator_rule.h"

namespace seqtile::planner {
namespace {

int64_t elements(std::span<const int64_t> shape) {
  return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies());
}

/// x[batch, channels, ...]; w[columns, channels of a group, ...] or, transposed, w[channels, columns of a group, ...];
/// optionally bias[columns]; y[batch, columns, ...].
struct Convolution {
  Shape weight;
  bool is_input = false, has_bias = false, is_transposed = false;
  int64_t groups = 1;
};

bool is_convolution(const RuleView& node, Convolution& conv) {
  const size_t inputs = node.node().inputs.size();
  const Shape* parameter = node.parameter("weight");
  if (inputs < 1 || inputs > 3 || !node.has_inputs(inputs) || (inputs == 1) != (parameter != nullptr)) return false;
  conv.is_input = inputs > 1;
  conv.has_bias = inputs == 3 || node.parameter("bias") != nullptr;
  conv.weight = conv.is_input ? node.input_shape(1) : *parameter;
  const std::string name = operator_name(node.node());
  conv.is_transposed = name.find("ranspose") != std::string::npos;
  const Shape &weight = conv.weight, &x = node.input_shape(0), &y = node.shape();
  if (weight.size() < 3 || x.size() != weight.size() || y.size() != weight.size() || x[0] != y[0]) return false;
  const int64_t of_x = weight[conv.is_transposed ? 0 : 1], of_y = weight[conv.is_transposed ? 1 : 0];
  if (conv.is_transposed ? of_x != x[1] || y[1] % of_y : of_y != y[1] || x[1] % of_x) return false;
  conv.groups = conv.is_transposed ? y[1] / of_y : x[1] / of_x;
  return !conv.has_bias ||
         (conv.is_input ? inputs == 3 && node.input_shape(2) == Shape{y[1]} : *node.parameter("bias") == Shape{y[1]});
}

/// A group's channels are all on one device: cutting the groups cuts channels and columns alike.
Rule conv_rule(const Convolution& conv) {
  Rule rule{{{"batch", {0}, 0}}};
  if (conv.groups > 1) rule.factors.push_back({"groups", {1}, 1, {}, true});
  else rule.factors.insert(rule.factors.end(), {Factor{"n", {kNoDim}, 1}, Factor{"k", {1}, kNoDim}});
  for (Factor& factor : rule.factors) {
    const bool is_batch = factor.operands[0] == 0, is_columns = !is_batch && factor.result == 1;
    const int of_weight = is_batch ? kNoDim : conv.groups > 1 ? 0 : is_columns == conv.is_transposed ? 1 : 0;
    std::vector<int>& dims = conv.is_input ? factor.operands : factor.parameters;
    dims.push_back(of_weight);
    if (conv.has_bias) dims.push_back(is_columns ? 0 : is_batch ? kNoDim : kUntouched);
  }
  if (conv.is_input) return rule;
  rule.parameters = {conv.weight};
  if (conv.has_bias)
    rule.parameters.push_back({conv.weight[conv.is_transposed ? 1 : 0] * (conv.is_transposed ? conv.groups : 1)});
  return rule;
}

}  // namespace

bool rule_conv(RuleView& node) {
  Convolution conv;
  if (!is_convolution(node, conv)) return false;
  const Rule rule = conv_rule(conv);
  const Shape &x = node.input_shape(0), &y = node.shape();
  const int64_t taps = elements(std::span(conv.weight).subspan(2)),
                places = elements(std::span(conv.is_transposed ? x : y).subspan(2));
  for (const Cut& cut : node.cuts(rule)) {
    const auto devices = [&](size_t factor) { return node.mesh().devices(cut.axes[factor]); };
    if (conv.groups > 1 && conv.groups % devices(1)) continue;
    const int64_t b = local_size(x[0], devices(0)), n = local_size(y[1], devices(1)),
                  k = conv.groups > 1 ? x[1] / conv.groups : local_size(x[1], devices(2));
    const double flops = 2 * static_cast<double>(b * n * k) * static_cast<double>(taps) * static_cast<double>(places);
    const KernelCall call{"conv", node.dtype(), {b, k, n, taps, places}, flops, node.traffic(rule, cut)};
    Work work;
    work.forward = node.time(call, work);
    work.backward = (node.has_gradient(0) ? 2 : 1) * work.forward;
    node.add(rule, cut, work);
  }
  return true;
}

}  // namespace seqtile::planner
