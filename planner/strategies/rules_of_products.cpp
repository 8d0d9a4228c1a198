// planner/strategies/rules_of_products.cpp -- the loops of linear layers and matrix products.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "planner/graph/local_shape.h"
#include "planner/strategies/operator_rule.h"

namespace seqtile::planner {
namespace {

KernelCall linear_call(const RuleView& node, int64_t rows, int64_t columns, int64_t sum) {
  const double m = static_cast<double>(rows), n = static_cast<double>(columns), k = static_cast<double>(sum);
  return {"linear", node.dtype(), {rows, columns, sum}, 2 * m * n * k, (m * k + n * k + m * n) * node.element_bytes()};
}

/// x[..., k], w[n, k] and optionally bias[n]; y[..., n]. Weight and bias are both inputs or both parameters.
struct Linear {
  const Shape *weight, *bias;
  bool is_input;
};

bool is_linear(const RuleView& node, Linear& linear) {
  const bool has_bias = node.has_inputs(3);
  linear.is_input = has_bias || node.has_inputs(2);
  if (!linear.is_input && !(node.has_inputs(1) && node.parameter("weight"))) return false;
  linear.weight = linear.is_input ? &node.input_shape(1) : node.parameter("weight");
  linear.bias = has_bias ? &node.input_shape(2) : linear.is_input ? nullptr : node.parameter("bias");
  const Shape &weight = *linear.weight, &x = node.input_shape(0), &y = node.shape();
  if (weight.size() != 2 || x.size() < 2 || x.size() != y.size()) return false;
  if (linear.bias && *linear.bias != Shape{weight[0]}) return false;
  return x.back() == weight[1] && y.back() == weight[0] && std::equal(x.begin(), x.end() - 1, y.begin());
}

// The last factors of a linear's rule, after the factors of its rows.
enum LinearFactor { kColumns, kSum, kGatheredColumns, kScatteredSum, kNumLinearFactors };

/// The rule has two loops with a collective within the kernel. One gathers x, which is cut along the rows, before the
/// product. The other sums partial results and scatters them along the rows after the product.
Rule linear_rule(const RuleView& node, const Linear& linear) {
  const int last = static_cast<int>(node.shape().size()) - 1, rows = last - 1;
  Rule rule;
  const auto add = [&](const char* name, int x, int w, int y, int fused_dim = kNoDim) {
    Factor factor{name, {x}, y};
    (linear.is_input ? factor.operands : factor.parameters).push_back(w);
    factor.fused_dim = fused_dim;
    rule.factors.push_back(std::move(factor));
  };
  for (int dim = 0; dim < last; ++dim) add(dim == rows ? "rows" : dim_name(static_cast<size_t>(dim)), dim, kNoDim, dim);
  add("n", kNoDim, 0, last);
  add("k", last, 1, kNoDim);
  add("n of gathered rows", rows, 0, last, rows);
  add("k to scattered rows", last, 1, rows, rows);
  if (!linear.is_input) rule.parameters = {*linear.weight};
  if (!linear.bias) return rule;
  if (!linear.is_input) rule.parameters.push_back(*linear.bias);
  for (Factor& factor : rule.factors)  // partial sums: one device adds the bias
    (linear.is_input ? factor.operands : factor.parameters)
        .push_back(factor.result == last     ? 0
                   : factor.result == kNoDim ? kUntouched
                                             : kNoDim);
  return rule;
}

/// The work of a kernel with `columns` columns: the sum over the linears of one input.
Work linear_work(const RuleView& node, const Cut& cut, int64_t columns, int64_t sum) {
  const Mesh& mesh = node.mesh();
  const Shape& shape = node.shape();
  const size_t last = shape.size() - 1;
  const auto axes = [&](LinearFactor factor) { return cut.axes[last + factor]; };
  int64_t rows = 1;
  for (size_t dim = 0; dim < last; ++dim) rows *= local_size(shape[dim], mesh.devices(cut.axes[dim]));
  const int64_t n = local_size(columns, mesh.devices(axes(kColumns) | axes(kGatheredColumns))),
                k = local_size(sum, mesh.devices(axes(kSum) | axes(kScatteredSum)));
  Work work;
  work.forward = node.time(linear_call(node, rows, n, k), work);
  const bool has_input_gradient = node.has_gradient(0),
             has_weight_gradient = node.node().inputs.size() > 1 ? node.has_gradient(1) : node.costs().trains;
  if (has_weight_gradient) work.backward = node.time(linear_call(node, n, k, rows), work);
  if (has_input_gradient) work.backward += node.time(linear_call(node, rows, k, n), work);
  const AxisSet gathers = axes(kGatheredColumns), fused = gathers | axes(kScatteredSum);
  if (!fused) return work;
  const int axis = first_axis(fused);
  const AxisSet of_length = cut.axes[last - 1];
  const int64_t part = rows / local_size(shape[last - 1], mesh.devices(of_length)) *
                       local_size(shape[last - 1], mesh.devices(of_length | fused));
  const double bytes = static_cast<double>(part * (gathers ? k : n)) * node.element_bytes();
  // Backward, a gather becomes a sum and a sum becomes a gather. Gathered rows are not kept; they are gathered again.
  const bool has_gradient = has_weight_gradient || has_input_gradient;
  const double step = collective_seconds(mesh, Collective::all_gather, axis, bytes),
               back = (gathers ? has_weight_gradient + has_input_gradient : 1) * step;
  work.communication = node.costs().fused(step, work.forward);
  if (has_gradient) work.communication += node.costs().fused(back, work.backward);
  return work;
}

}  // namespace

bool rule_linears(std::vector<RuleView>& siblings) {
  std::vector<Rule> rules;
  int64_t columns = 0;
  Linear linear{};
  for (const RuleView& node : siblings) {
    const bool had_input = linear.is_input;
    if (!is_linear(node, linear) || (!rules.empty() && linear.is_input != had_input)) return false;
    rules.push_back(linear_rule(node, linear));
    columns += (*linear.weight)[0];
  }
  for (const Cut& cut : siblings.front().cuts(rules.front())) {
    bool can_cut = true;
    for (size_t i = 1; i < siblings.size() && can_cut; ++i) can_cut = siblings[i].can_cut(rules[i], cut);
    if (!can_cut) continue;
    siblings.front().add(rules.front(), cut, linear_work(siblings.front(), cut, columns, (*linear.weight)[1]));
    for (size_t i = 1; i < siblings.size(); ++i) siblings[i].add(rules[i], cut, {});
  }
  return true;
}

/// a[..., i, k] and b[..., k, j]; leading dimensions are aligned at the last of them. The first of three inputs is a
/// bias; where results are partial sums, one device adds it.
bool rule_matmul(RuleView& node) {
  const bool has_bias = node.has_inputs(3);
  if (!has_bias && !node.has_inputs(2)) return false;
  const size_t first = has_bias ? 1 : 0;
  const Shape &a = node.input_shape(first), &b = node.input_shape(first + 1), &y = node.shape();
  const size_t rank = y.size(), rank_a = a.size(), rank_b = b.size();
  if (rank_a < 2 || rank_b < 2 || rank != std::max(rank_a, rank_b) || a.back() != b[rank_b - 2]) return false;
  if (y[rank - 2] != a[rank_a - 2] || y.back() != b.back()) return false;
  if (has_bias && node.input_shape(0).size() > rank) return false;
  Rule rule;
  /// The dimension of an operand that is aligned with dimension `dim` of the result, or kNoDim.
  const auto aligned = [&](const Shape& shape, size_t dim) {
    const size_t missing = rank - shape.size();
    return dim >= missing && shape[dim - missing] == y[dim] ? static_cast<int>(dim - missing) : kNoDim;
  };
  const auto add = [&](const char* name, int of_a, int of_b, int of_y) {
    Factor factor{name, {of_a, of_b}, of_y};
    const auto of_bias = [&] { return aligned(node.input_shape(0), static_cast<size_t>(of_y)); };
    if (has_bias) factor.operands.insert(factor.operands.begin(), of_y == kNoDim ? kUntouched : of_bias());
    rule.factors.push_back(std::move(factor));
  };
  const auto at = [](size_t dim) { return static_cast<int>(dim); };
  for (size_t dim = 0; dim + 2 < rank; ++dim) add(dim_name(dim), aligned(a, dim), aligned(b, dim), at(dim));
  add("rows", at(rank_a - 2), kNoDim, at(rank - 2));
  add("n", kNoDim, at(rank_b - 1), at(rank - 1));
  add("k", at(rank_a - 1), at(rank_b - 2), kNoDim);
  for (const Cut& cut : node.cuts(rule)) {
    const Mesh& mesh = node.mesh();
    int64_t batch = 1;
    for (size_t dim = 0; dim + 2 < rank; ++dim) batch *= local_size(y[dim], mesh.devices(cut.axes[dim]));
    const int64_t m = local_size(y[rank - 2], mesh.devices(cut.axes[rank - 2])),
                  n = local_size(y.back(), mesh.devices(cut.axes[rank - 1])),
                  k = local_size(a.back(), mesh.devices(cut.axes[rank]));
    const double flops = 2 * static_cast<double>(batch * m) * static_cast<double>(n * k);
    const KernelCall call{"matmul", node.dtype(), {batch, m, n, k}, flops, node.traffic(rule, cut)};
    Work work;
    work.forward = node.time(call, work);
    work.backward = (node.has_gradient(first) + node.has_gradient(first + 1)) * work.forward;
    node.add(rule, cut, work);
  }
  return true;
}

}  // namespace seqtile::planner
