// planner/strategies/rules_of_reshapes.cpp -- the loops of operators that only reshape, most of them without a copy.
// SPDX-License-Identifier: Apache-2.0
//
// A dimension whose elements would move to other devices cannot be cut. The problem prices a change of layout before or
// after the operator instead.
#include <algorithm>

#include "planner/graph/reshape_maps.h"
#include "planner/strategies/streaming.h"

namespace seqtile::planner {
namespace {

/// The first dimension of more than one element, or -1.
int outermost(const Shape& shape, size_t begin, size_t end) {
  for (size_t dim = begin; dim < end; ++dim)
    if (shape[dim] > 1) return static_cast<int>(dim);
  return -1;
}

/// A loop over each dimension of `from` that has the same size in every result.
Rule same_dims(const Shape& from, const std::vector<TensorType>& results) {
  Rule rule;
  for (size_t dim = 0; dim < from.size(); ++dim) {
    const bool is_same = std::ranges::all_of(results, [&](const TensorType& type) {
      return type.shape.size() == from.size() && type.shape[dim] == from[dim];
    });
    if (is_same && from[dim] > 1)
      rule.factors.push_back({dim_name(dim), {static_cast<int>(dim)}, static_cast<int>(dim)});
  }
  return rule;
}

}  // namespace

/// The outermost dimension of each group may be cut; into equal parts, unless its size stays the same.
bool rule_view(RuleView& node) {
  if (!node.has_inputs(1)) return false;
  const Shape &from = node.input_shape(0), &to = node.shape();
  const auto groups = view_groups(from, to);
  if (!groups) return false;
  Rule rule;
  for (const ViewGroup& group : *groups) {
    const int f = outermost(from, group.from, group.from_end), t = outermost(to, group.to, group.to_end);
    if (f < 0 || t < 0) continue;
    const bool is_same = from[static_cast<size_t>(f)] == to[static_cast<size_t>(t)];
    rule.factors.push_back({dim_name(static_cast<size_t>(t)), {f}, t, {}, !is_same});
  }
  return add_free(node, rule);
}

bool rule_permuted(RuleView& node) {
  if (!node.has_inputs(1)) return false;
  const Shape &from = node.input_shape(0), &to = node.shape();
  const auto order = permutation_of(node.node(), static_cast<int>(from.size()));
  if (!order || to.size() != from.size()) return false;
  Rule rule;
  for (size_t dim = 0; dim < to.size(); ++dim) {
    const int source = (*order)[dim];
    if (to[dim] != from[static_cast<size_t>(source)]) return false;
    if (to[dim] > 1) rule.factors.push_back({dim_name(dim), {source}, static_cast<int>(dim)});
  }
  return add_free(node, rule);
}

/// The split dimension stays whole: the dimension in which the parts are smaller.
bool rule_split(RuleView& node) {
  if (node.node().inputs.size() != 1 || node.input(0).results.size() != 1 || node.node().results.empty()) return false;
  if (node.shape().size() != node.input_shape(0).size()) return false;
  return add_free(node, same_dims(node.input_shape(0), node.node().results));
}

/// A member of a tuple, or a part of a tensor. A tensor stays whole along the dimensions in which the part is smaller.
bool rule_getitem(RuleView& node) {
  if (node.node().inputs.size() != 1 || node.node().results.empty() || node.input(0).results.empty()) return false;
  if (!node.input(0).is_tuple) return add_free(node, same_dims(node.input_shape(0), node.node().results));
  return add_free(node, same_dims(node.shape(), node.input(0).results));
}

/// A part of a tensor, or several parts. Dimensions that keep their size may be cut; a longer result is padded.
bool rule_part(RuleView& node) {
  if (!has_tensors(node) || node.node().inputs.size() != 1) return false;
  const Rule rule = same_dims(node.input_shape(0), node.node().results);
  return is_view(node.node()) ? add_free(node, rule) : add_streaming(node, rule, kElementwise);
}

/// One member along a dimension, or all members as a tuple.
bool rule_without(RuleView& node) {
  if (!has_tensors(node) || node.node().inputs.size() != 1) return false;
  const Shape &from = node.input_shape(0), &to = node.shape();
  const std::vector<int> dims = dims_of(node.node(), from.size());
  if (dims.empty() || from.size() != to.size() + 1) return false;
  Rule rule;
  for (int dim = 0; dim < static_cast<int>(from.size()); ++dim) {
    if (dim == dims.front()) continue;
    const int result = dim - (dim > dims.front());
    if (from[static_cast<size_t>(dim)] != to[static_cast<size_t>(result)]) return false;
    if (from[static_cast<size_t>(dim)] > 1)
      rule.factors.push_back({dim_name(static_cast<size_t>(result)), {dim}, result});
  }
  return add_free(node, rule);
}

/// Stacks tensors of one shape along a new dimension.
bool rule_stacked(RuleView& node) {
  if (!has_tensors(node) || node.node().inputs.empty()) return false;
  const Shape& to = node.shape();
  const std::vector<int> dims = dims_of(node.node(), to.size());
  if (dims.empty()) return false;
  Rule rule;
  for (int result = 0; result < static_cast<int>(to.size()); ++result) {
    if (result == dims.front() || to[static_cast<size_t>(result)] == 1) continue;
    const int dim = result - (result > dims.front());
    rule.factors.push_back(
        {dim_name(static_cast<size_t>(result)), std::vector<int>(node.node().inputs.size(), dim), result});
  }
  for (size_t i = 0; i < node.node().inputs.size(); ++i) {
    Shape wanted = to;
    wanted.erase(wanted.begin() + dims.front());
    if (node.input_shape(i) != wanted) return false;
  }
  return add_streaming(node, rule, kElementwise);
}

/// A dimension of one element, or a missing one, becomes a larger one; any other larger dimension is repeated and
/// whole.
bool rule_expanded(RuleView& node) {
  if (!has_tensors(node) || node.node().inputs.empty()) return false;
  const Shape &from = node.input_shape(0), &to = node.shape();
  if (from.size() > to.size()) return false;
  Rule rule = broadcast_rule(node);
  std::erase_if(rule.factors, [&](const Factor& factor) {
    const size_t missing = to.size() - from.size(), dim = static_cast<size_t>(factor.result);
    return dim >= missing && from[dim - missing] != to[dim] && from[dim - missing] != 1;
  });
  return is_view(node.node()) ? add_free(node, rule) : add_streaming(node, rule, kElementwise);
}

}  // namespace seqtile::planner
