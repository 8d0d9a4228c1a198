// autotune/plan/rules_of_rows.cpp -- the loops of operators that work element by element, row by row, or in windows.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "autotune/plan/local_shape.h"
#include "autotune/plan/operator_rule.h"

namespace seqtile::plan {
namespace {

/// Whether each input is a tensor that the result's shape extends.
bool broadcasts(const RuleView& node) {
  if (node.node().inputs.empty() || !node.has_inputs(node.node().inputs.size())) return false;
  const Shape& shape = node.shape();
  for (size_t i = 0; i < node.node().inputs.size(); ++i) {
    const Shape& input = node.input_shape(i);
    if (input.size() > shape.size()) return false;
    for (size_t dim = 0; dim < input.size(); ++dim)
      if (input[dim] != 1 && input[dim] != shape[dim + shape.size() - input.size()]) return false;
  }
  return true;
}

bool keeps_shape(const RuleView& node) { return node.has_inputs(1) && node.input_shape(0) == node.shape(); }

/// Rows and columns of the result's part.
std::array<int64_t, 6> rows_and_columns(const RuleView& node, Layout layout) {
  const Shape& shape = node.shape();
  std::array<int64_t, 6> sizes{1, 1};
  for (size_t dim = 0; dim < shape.size(); ++dim)
    sizes[dim + 1 == shape.size()] *=
        local_size(shape[dim], node.mesh().devices(layout.axes_of(static_cast<int>(dim))));
  return sizes;
}

struct Kernel {
  const char *forward, *backward;
  bool has_rows = true;
};
constexpr Kernel kElementwise{"elementwise", "elementwise_backward", false}, kPool{"pool", "pool_backward", false},
    kSoftmax{"softmax", "softmax_backward"}, kRmsNorm{"rms_norm", "rms_norm_backward"},
    kLayerNorm{"layer_norm", "layer_norm_backward"}, kBatchNorm{"batch_norm", "batch_norm_backward"};
constexpr Kernel kGated[] = {{"silu_and_mul", "silu_and_mul_backward"},
                             {"gelu_and_mul", "gelu_and_mul_backward"},
                             {"gelu_tanh_and_mul", "gelu_tanh_and_mul_backward"}};

/// Each operand is read and the result written; the backward pass reads the result's gradient beside the operands and
/// writes theirs.
Work streaming_work(const RuleView& node, const Rule& rule, const Cut& cut, const Kernel& kernel) {
  const double forward = node.traffic(rule, cut), flops = node.result_bytes(rule, cut) / node.element_bytes();
  KernelCall call{kernel.forward, node.dtype(), rows_and_columns(node, node.result(rule, cut)), flops, forward};
  if (!kernel.has_rows) call.sizes = {call.sizes[0] * call.sizes[1]};
  Work work;
  work.forward = node.time(call, work);
  if (!node.has_any_gradient()) return work;
  call.operation = kernel.backward;
  call.bytes = 2 * forward - node.result_bytes(rule, cut);
  work.backward = node.time(call, work);
  return work;
}

bool add_streaming(RuleView& node, const Rule& rule, const Kernel& kernel) {
  for (const Cut& cut : node.cuts(rule)) node.add(rule, cut, streaming_work(node, rule, cut, kernel));
  return true;
}

}  // namespace

bool rule_elementwise(RuleView& node) {
  return broadcasts(node) && add_streaming(node, broadcast_rule(node), kElementwise);
}

bool rule_rotary(RuleView& node) {
  return broadcasts(node) && add_streaming(node, broadcast_rule(node, 1), kElementwise);
}

bool rule_softmax(RuleView& node) {
  return keeps_shape(node) && add_streaming(node, broadcast_rule(node, 1), kSoftmax);
}

bool rule_gated(RuleView& node) {
  const auto kernel = std::ranges::find(kGated, operator_name(node.node()), [](const Kernel& k) { return k.forward; });
  if (kernel == std::end(kGated) || !node.has_inputs(1)) return false;
  const Shape &x = node.input_shape(0), &y = node.shape();
  if (x.size() != y.size() || y.empty() || x.back() != 2 * y.back()) return false;
  if (!std::equal(y.begin(), y.end() - 1, x.begin())) return false;
  Rule rule = broadcast_rule(node, 1);
  const int last = static_cast<int>(y.size()) - 1;
  rule.factors.push_back({"n", {last}, last, {}, true});  // a device has the same part of both halves
  return add_streaming(node, rule, *kernel);
}

/// Rows are whole: the last dimensions, which a weight has, and a bias where there is one.
bool rule_norm(RuleView& node) {
  const Shape *weight = node.parameter("weight"), *bias = node.parameter("bias");
  if (!keeps_shape(node) || !weight || weight->empty() || weight->size() >= node.shape().size()) return false;
  if (!std::equal(weight->rbegin(), weight->rend(), node.shape().rbegin()) || (bias && *bias != *weight)) return false;
  Rule rule = broadcast_rule(node, weight->size());
  rule.parameters.assign(bias ? 2 : 1, *weight);
  for (Factor& factor : rule.factors) factor.parameters.assign(rule.parameters.size(), kNoDim);
  return add_streaming(node, rule, operator_name(node.node()) == "RMSNorm" ? kRmsNorm : kLayerNorm);
}

/// x[batch, channels, ...]: in training means and variances are of the whole batch, summed over the axes that cut it;
/// the backward pass sums as much, which are the gradients of weight and bias.
bool rule_batch_norm(RuleView& node) {
  if (!keeps_shape(node) || node.shape().size() < 2) return false;
  Rule rule{{{"batch", {0}, 0}, {"channels", {1}, 1}}};
  for (const char* name : {"weight", "bias"})
    if (const Shape* parameter = node.parameter(name)) rule.parameters.push_back(*parameter);
  if (std::ranges::any_of(rule.parameters, [&](const Shape& p) { return p != Shape{node.shape()[1]}; })) return false;
  rule.factors[0].parameters.assign(rule.parameters.size(), kNoDim);
  rule.factors[1].parameters.assign(rule.parameters.size(), 0);
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

/// indices[...], w[rows, columns]. Where rows are cut, those that a device lacks add nothing to its sums.
bool rule_embedding(RuleView& node) {
  const bool is_input = node.has_inputs(2);
  if (!is_input && !(node.has_inputs(1) && node.parameter("weight"))) return false;
  const Shape &shape = node.shape(), &weight = is_input ? node.input_shape(1) : *node.parameter("weight"),
              &indices = node.input_shape(0);
  if (weight.size() != 2 || shape.size() < 2 || weight[1] != shape.back() || indices.size() + 1 != shape.size())
    return false;
  const int last = static_cast<int>(shape.size()) - 1;
  Rule rule;
  const auto add = [&](const char* name, int of_indices, int of_weight, int result) {
    Factor factor{name, {of_indices}, result};
    (is_input ? factor.operands : factor.parameters).push_back(of_weight);
    rule.factors.push_back(std::move(factor));
  };
  for (int dim = 0; dim < last; ++dim) add(dim_name(static_cast<size_t>(dim)), dim, kNoDim, dim);
  add("n", kNoDim, 1, last);
  add("vocabulary", kUntouched, 0, kNoDim);
  if (!is_input) rule.parameters = {weight};
  for (const Cut& cut : node.cuts(rule)) {
    const double bytes = 2 * node.result_bytes(rule, cut);
    const KernelCall call{"embedding", node.dtype(), rows_and_columns(node, node.result(rule, cut)), 0, bytes};
    Work work;
    work.forward = node.time(call, work);
    if (is_input ? node.has_gradient(1) : node.costs().trains)
      work.backward = node.time({"embedding_backward", call.dtype, call.sizes, 0, bytes}, work);
    node.add(rule, cut, work);
  }
  return true;
}

/// Windows over all but the first two dimensions.
bool rule_pool(RuleView& node) {
  if (!node.has_inputs(1)) return false;
  const Shape &shape = node.shape(), &input = node.input_shape(0);
  if (shape.size() < 3 || input.size() != shape.size() || input[0] != shape[0] || input[1] != shape[1]) return false;
  return add_streaming(node, {{{"batch", {0}, 0}, {"channels", {1}, 1}}}, kPool);
}

}  // namespace seqtile::plan
