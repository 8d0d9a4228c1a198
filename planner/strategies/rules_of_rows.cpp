// planner/strategies/rules_of_rows.cpp -- the loops of operators on elements, rows or windows.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "planner/graph/local_shape.h"
#include "planner/graph/reshape_maps.h"
#include "planner/strategies/streaming.h"

namespace seqtile::planner {
namespace {

/// Whether all results have one shape, to which every input broadcasts.
bool broadcasts(const RuleView& node) {
  if (node.node().inputs.empty() || !has_tensors(node)) return false;
  const Shape& shape = node.shape();
  for (const TensorType& type : node.node().results)
    if (type.shape != shape) return false;
  for (size_t i = 0; i < node.node().inputs.size(); ++i) {
    const Shape& input = node.input_shape(i);
    if (input.size() > shape.size()) return false;
    for (size_t dim = 0; dim < input.size(); ++dim)
      if (input[dim] != 1 && input[dim] != shape[dim + shape.size() - input.size()]) return false;
  }
  return true;
}

bool keeps_shape(const RuleView& node) { return node.has_inputs(1) && node.input_shape(0) == node.shape(); }

constexpr StreamKernel kPool{"pool", "pool_backward", false};
constexpr StreamKernel kGated[] = {{"silu_and_mul", "silu_and_mul_backward"},
                                   {"gelu_and_mul", "gelu_and_mul_backward"},
                                   {"gelu_tanh_and_mul", "gelu_tanh_and_mul_backward"},
                                   {"relu_squared_and_mul", "relu_squared_and_mul_backward"}};

}  // namespace

bool rule_elementwise(RuleView& node) {
  return broadcasts(node) && add_streaming(node, broadcast_rule(node), kElementwise);
}

bool rule_rotary(RuleView& node) {
  return broadcasts(node) && add_streaming(node, broadcast_rule(node, 1), kElementwise);
}

bool rule_softmax(RuleView& node) {
  if (!keeps_shape(node)) return false;
  const size_t rank = node.shape().size();
  const std::vector<int> dims = dims_of(node.node(), rank);
  if (!dims.empty() && dims.front() + 1 != static_cast<int>(rank)) return rule_along(node);
  return add_streaming(node, broadcast_rule(node, 1), kSoftmax);
}

/// A new tensor whose values depend on no tensor, or only on a tensor's shape.
bool rule_created(RuleView& node) {
  if (!node.node().inputs.empty()) return rule_elementwise(node);
  return has_tensors(node) && add_streaming(node, broadcast_rule(node), kElementwise);
}

bool rule_gated(RuleView& node) {
  const auto kernel =
      std::ranges::find(kGated, operator_name(node.node()), [](const StreamKernel& k) { return k.forward; });
  if (kernel == std::end(kGated) || !node.has_inputs(1)) return false;
  const Shape &x = node.input_shape(0), &y = node.shape();
  if (x.size() != y.size() || y.empty() || x.back() != 2 * y.back()) return false;
  if (!std::equal(y.begin(), y.end() - 1, x.begin())) return false;
  Rule rule = broadcast_rule(node, 1);
  const int last = static_cast<int>(y.size()) - 1;
  rule.factors.push_back({"n", {last}, last, {}, true});  // a device has the same part of both halves
  return add_streaming(node, rule, *kernel);
}

/// indices[...] and w[rows, columns]. The weight is a parameter or an input; PyTorch's dispatcher passes it first. If
/// rows are cut, indices of other devices' rows add zero to a device's partial sums.
bool rule_embedding(RuleView& node) {
  const bool is_input = node.has_inputs(2);
  if (!is_input && !(node.has_inputs(1) && node.parameter("weight"))) return false;
  const size_t of_weight = is_input && node.input(0).results.front().dtype == node.dtype() ? 0 : 1;
  const Shape &shape = node.shape(), &weight = is_input ? node.input_shape(of_weight) : *node.parameter("weight"),
              &indices = node.input_shape(is_input ? 1 - of_weight : 0);
  if (weight.size() != 2 || shape.size() < 2 || weight[1] != shape.back() || indices.size() + 1 != shape.size())
    return false;
  const int last = static_cast<int>(shape.size()) - 1;
  Rule rule;
  const auto add = [&](const char* name, int of_indices, int dim, int result) {
    Factor factor{name, {of_indices}, result};
    if (is_input) factor.operands.insert(factor.operands.begin() + static_cast<int>(of_weight), dim);
    else factor.parameters = {dim};
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
    if (is_input ? node.has_gradient(of_weight) : node.costs().trains)
      work.backward = node.time({"embedding_backward", call.dtype, call.sizes, 0, bytes}, work);
    node.add(rule, cut, work);
  }
  return true;
}

/// Windows run over all but the first two dimensions.
bool rule_pool(RuleView& node) {
  if (!has_tensors(node) || node.node().inputs.size() != 1) return false;
  const Shape &shape = node.shape(), &input = node.input_shape(0);
  if (shape.size() < 3 || input.size() != shape.size() || input[0] != shape[0] || input[1] != shape[1]) return false;
  return add_streaming(node, {{{"batch", {0}, 0}, {"channels", {1}, 1}}}, kPool);
}

}  // namespace seqtile::planner
