// planner/strategies/rules_of_dims.cpp -- the loops of operators that work along some dimensions.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "planner/graph/reshape_maps.h"
#include "planner/strategies/streaming.h"

namespace seqtile::planner {
namespace {

int64_t size_of(const Shape& shape, int dim) { return shape[static_cast<size_t>(dim)]; }

/// A loop over each dimension that is not in `whole` and has one size in all tensors. Inputs are aligned at the last
/// dimension.
Rule rule_beside(const RuleView& node, const std::vector<int>& whole) {
  const Shape& shape = node.shape();
  const int rank = static_cast<int>(shape.size());
  Rule rule;
  for (int dim = 0; dim < rank; ++dim) {
    bool is_loop = size_of(shape, dim) > 1 && std::ranges::find(whole, dim) == whole.end();
    for (const TensorType& type : node.node().results)
      is_loop = is_loop && type.shape.size() == shape.size() && size_of(type.shape, dim) == size_of(shape, dim);
    Factor factor{dim_name(static_cast<size_t>(dim)), {}, dim};
    for (size_t i = 0; i < node.node().inputs.size(); ++i) {
      const Shape& input = node.input_shape(i);
      const int at = dim - rank + static_cast<int>(input.size());
      const int64_t size = at < 0 ? 1 : size_of(input, at);
      is_loop = is_loop && (size == 1 || size == size_of(shape, dim));
      factor.operands.push_back(size == 1 ? kNoDim : at);
    }
    if (is_loop) rule.factors.push_back(std::move(factor));
  }
  return rule;
}

/// By dimension of the input: the dimension of the result, or kNoDim if it is reduced. Empty if the shapes do not
/// decide.
std::vector<int> kept_dims(const RuleView& node) {
  const Shape &x = node.input_shape(0), &y = node.shape();
  std::vector<int> reduced = dims_of(node.node(), x.size()), kept;
  const bool keeps_rank = x.size() == y.size();
  if (reduced.empty() && !keeps_rank && !y.empty()) return {};
  const bool is_all = reduced.empty() && y.empty();
  for (int dim = 0, result = 0; dim < static_cast<int>(x.size()); ++dim) {
    const bool is_named = std::ranges::find(reduced, dim) != reduced.end();
    const bool is_reduced = is_all || (reduced.empty() ? size_of(y, dim) == 1 && size_of(x, dim) != 1 : is_named);
    kept.push_back(is_reduced ? kNoDim : result);
    result += !is_reduced || keeps_rank;
    if (!is_reduced && (kept.back() >= static_cast<int>(y.size()) || size_of(y, kept.back()) != size_of(x, dim)))
      return {};
  }
  return kept;
}

/// Whether the results of parts of the input add up to the result.
bool is_additive(const std::string& name) {
  return name == "sum" || name == "mean" || name == "nansum" || name == "count_nonzero";
}

}  // namespace

bool rule_along(RuleView& node) {
  if (!has_tensors(node) || node.node().inputs.empty()) return false;
  std::vector<int> whole = dims_of(node.node(), node.shape().size());
  if (whole.empty()) return false;
  return add_streaming(node, rule_beside(node, whole), kElementwise);
}

bool rule_pair(RuleView& node) {
  const int rank = static_cast<int>(node.node().results.empty() ? 0 : node.shape().size());
  if (!has_tensors(node) || node.node().inputs.empty() || rank < 2) return false;
  return add_streaming(node, rule_beside(node, {rank - 2, rank - 1}), kElementwise);
}

/// A reduced dimension may be cut only if the operator is additive; the result is then a partial sum.
bool rule_reduced(RuleView& node) {
  if (!has_tensors(node) || node.node().inputs.size() != 1) return false;
  const Shape& x = node.input_shape(0);
  if (std::ranges::any_of(node.node().results, [&](const TensorType& type) { return type.shape != node.shape(); }))
    return false;
  const std::vector<int> kept = kept_dims(node);
  if (kept.size() != x.size()) return false;
  Rule rule;
  for (size_t dim = 0; dim < x.size(); ++dim) {
    const bool is_reduced = kept[dim] == kNoDim;
    if (x[dim] == 1 || (is_reduced && !is_additive(operator_name(node.node())))) continue;
    rule.factors.push_back({dim_name(dim), {static_cast<int>(dim)}, kept[dim], {}, is_reduced});
  }
  return add_streaming(node, rule, kElementwise);
}

bool rule_counted(RuleView& node) {
  if (!node.has_inputs(1)) return false;
  Rule rule;
  for (size_t dim = 0; dim < node.input_shape(0).size(); ++dim)
    rule.factors.push_back({dim_name(dim), {static_cast<int>(dim)}, kNoDim});
  return add_streaming(node, rule, kElementwise);
}

/// logits[rows, classes, ...], and labels[rows, ...] or labels of the logits' shape. The result is one number, a sum or
/// a mean, or one number for each label.
bool rule_loss(RuleView& node) {
  if (!has_tensors(node) || node.node().inputs.size() < 2) return false;
  const Shape &x = node.input_shape(0), &labels = node.input_shape(1), &y = node.shape();
  if (x.empty() || labels.empty() || x[0] != labels[0] || !(y.empty() || y[0] == x[0])) return false;
  Rule rule{{{"rows", {0, 0}, y.empty() ? kNoDim : 0, {}, true}}};
  rule.factors[0].operands.resize(node.node().inputs.size(), kNoDim);
  return add_streaming(node, rule, kSoftmax);
}

bool rule_one_hot(RuleView& node) {
  if (!node.has_inputs(1) || node.shape().size() != node.input_shape(0).size() + 1) return false;
  Rule rule;
  for (size_t dim = 0; dim + 1 < node.shape().size(); ++dim)
    rule.factors.push_back({dim_name(dim), {static_cast<int>(dim)}, static_cast<int>(dim)});
  return add_streaming(node, rule, kElementwise);
}

}  // namespace seqtile::planner
