// planner/strategies/rules_of_indices.cpp -- the loops of operators that read or write by tensors of indices.
// SPDX-License-Identifier: Apache-2.0
//
// Arguments are x and, by dimension of x, the name of a tensor of indices or "None": x[:, i] has "x", "None", "i". The
// common shape of the indices replaces the dimensions that they index, where these are adjacent: x[a, b, c] at "x",
// "None", "i", with i[m, n], gives y[a, m, n, c]. Indexed dimensions stay whole.
#include <algorithm>

#include "planner/graph/reshape_maps.h"
#include "planner/strategies/streaming.h"

namespace seqtile::planner {
namespace {

struct Indexed {
  std::vector<size_t> inputs;  ///< inputs of the node that are indices
  size_t first = 0, last = 0;  ///< dimensions [first, last) of x are indexed
  size_t rank = 0;             ///< rank of the common shape of the indices
};

/// Reads the indices among inputs [1, inputs) of the node. Returns false if there are none, or if the indexed
/// dimensions are not adjacent.
bool read_indices(const RuleView& node, size_t inputs, Indexed& indexed) {
  const std::vector<std::string>& arguments = node.node().arguments;
  bool has_first = false;
  for (size_t i = 1; i < arguments.size() && i <= node.input_shape(0).size(); ++i) {
    if (arguments[i] == "None") continue;
    size_t input = 1;
    while (input < inputs && node.input(input).name != arguments[i]) ++input;
    if (input == inputs) break;
    // Not adjacent: the result has the indices' dimensions in front.
    if (has_first && indexed.last != i - 1) return false;
    if (!has_first) indexed.first = i - 1;
    has_first = true;
    indexed.last = i;
    indexed.inputs.push_back(input);
    indexed.rank = std::max(indexed.rank, node.input_shape(input).size());
  }
  return has_first;
}

/// Adds a loop over each dimension of the indices' common shape; indices are aligned at the last dimension.
void add_places(const RuleView& node, const Indexed& indexed, Rule& rule) {
  for (size_t place = 0; place < indexed.rank; ++place) {
    const size_t result = indexed.first + place;
    Factor factor{dim_name(result), std::vector<int>(node.node().inputs.size(), kNoDim), static_cast<int>(result)};
    for (const size_t input : indexed.inputs) {
      const Shape& shape = node.input_shape(input);
      const size_t missing = indexed.rank - shape.size();
      if (place >= missing && shape[place - missing] == node.shape()[result])
        factor.operands[input] = static_cast<int>(place - missing);
    }
    if (node.shape()[result] > 1) rule.factors.push_back(std::move(factor));
  }
}

bool rule_read(RuleView& node) {
  const size_t inputs = node.node().inputs.size();
  Indexed indexed;
  if (!read_indices(node, inputs, indexed) || indexed.inputs.size() + 1 != inputs) return false;
  const Shape &x = node.input_shape(0), &y = node.shape();
  if (y.size() != x.size() - (indexed.last - indexed.first) + indexed.rank) return false;
  Rule rule;
  for (size_t dim = 0; dim < x.size(); ++dim) {
    if (dim == indexed.first) add_places(node, indexed, rule);
    if (dim >= indexed.first && dim < indexed.last) continue;
    const size_t result = dim < indexed.first ? dim : dim - indexed.last + indexed.first + indexed.rank;
    if (y[result] != x[dim]) return false;
    Factor factor{dim_name(result), std::vector<int>(inputs, kNoDim), static_cast<int>(result)};
    factor.operands[0] = static_cast<int>(dim);
    if (x[dim] > 1) rule.factors.push_back(std::move(factor));
  }
  return add_streaming(node, rule, kElementwise);
}

/// x and, as last input, the values that are written. The result has the shape of x.
bool rule_written(RuleView& node) {
  const size_t inputs = node.node().inputs.size();
  Indexed indexed;
  if (inputs < 2 || node.input_shape(0) != node.shape() || !read_indices(node, inputs - 1, indexed)) return false;
  const Shape &x = node.shape(), &values = node.input_shape(inputs - 1);
  Rule rule;
  for (size_t dim = indexed.last; dim < x.size(); ++dim) {
    const size_t behind = x.size() - dim;
    Factor factor{dim_name(dim), std::vector<int>(inputs, kNoDim), static_cast<int>(dim)};
    factor.operands[0] = static_cast<int>(dim);
    if (values.size() >= behind && values[values.size() - behind] == x[dim])
      factor.operands[inputs - 1] = static_cast<int>(values.size() - behind);
    if (x[dim] > 1) rule.factors.push_back(std::move(factor));
  }
  return add_streaming(node, rule, kElementwise);
}

/// x, a dimension, and indices[n] into that dimension.
bool rule_selected(RuleView& node) {
  if (!node.has_inputs(2) || node.input_shape(0).size() != node.shape().size()) return false;
  const Shape &x = node.input_shape(0), &y = node.shape();
  const std::vector<int> dims = dims_of(node.node(), x.size());
  if (dims.empty()) return false;
  Rule rule;
  for (int dim = 0; dim < static_cast<int>(x.size()); ++dim) {
    const bool is_indexed = dim == dims.front();
    if (y[static_cast<size_t>(dim)] > 1)
      rule.factors.push_back({dim_name(static_cast<size_t>(dim)),
                              {is_indexed ? kNoDim : dim, is_indexed && node.input_shape(1).size() == 1 ? 0 : kNoDim},
                              dim});
  }
  return add_streaming(node, rule, kElementwise);
}

}  // namespace

bool rule_indexed(RuleView& node) {
  if (!has_tensors(node) || node.node().inputs.empty()) return false;
  const std::string name = operator_name(node.node());
  if (name == "index_select") return rule_selected(node);
  return name == "index" ? rule_read(node) : rule_written(node);
}

}  // namespace seqtile::planner
