// planner/strategies/rules_of_contractions.cpp -- the loops of einsum, of experts and of recurrent layers.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "planner/graph/local_shape.h"
#include "planner/strategies/operator_rule.h"

namespace seqtile::planner {
namespace {

/// An equation such as "abc,dbc->ad": the letters of each operand and of the result.
struct Equation {
  std::vector<std::string> operands;
  std::string result, letters;
};

bool read_equation(const RuleView& node, Equation& equation) {
  if (node.node().arguments.empty()) return false;
  std::string text;
  for (const char c : node.node().arguments.front())
    if (c != ' ') text += c;
  const size_t arrow = text.find("->");
  if (arrow == std::string::npos || text.find('.') != std::string::npos) return false;
  equation.result = text.substr(arrow + 2);
  std::string operand;
  for (const char c : text.substr(0, arrow) + ",") {
    if (c != ',') {
      operand += c;
      if (equation.letters.find(c) == std::string::npos) equation.letters += c;
      continue;
    }
    equation.operands.push_back(operand);
    operand.clear();
  }
  return equation.operands.size() == node.node().inputs.size() && equation.letters.size() <= Cut::kMostFactors;
}

/// Whether each letter has one size.
bool fits(const RuleView& node, const Equation& equation) {
  std::vector<int64_t> sizes(equation.letters.size(), 0);
  const auto agrees = [&](const std::string& letters, const Shape& shape) {
    if (letters.size() != shape.size()) return false;
    for (size_t dim = 0; dim < shape.size(); ++dim) {
      const size_t letter = equation.letters.find(letters[dim]);
      if (letter == std::string::npos || letters.find(letters[dim]) != dim) return false;
      if (sizes[letter] != 0 && sizes[letter] != shape[dim]) return false;
      sizes[letter] = shape[dim];
    }
    return true;
  };
  for (size_t i = 0; i < equation.operands.size(); ++i)
    if (!agrees(equation.operands[i], node.input_shape(i))) return false;
  return agrees(equation.result, node.shape());
}

int dim_of(const std::string& letters, char letter) {
  const size_t dim = letters.find(letter);
  return dim == std::string::npos ? kNoDim : static_cast<int>(dim);
}

double elements(const Shape& shape) {
  double count = 1;
  for (const int64_t size : shape) count *= static_cast<double>(size);
  return count;
}

/// The work of a device's equal share of a product. The backward pass has one product for each of two operands.
Work product_work(const RuleView& node, const Rule& rule, const Cut& cut, double flops) {
  AxisSet axes = 0;
  for (size_t f = 0; f < rule.factors.size(); ++f) axes |= cut.axes[f];
  const KernelCall call{"product", node.dtype(), {}, flops / node.mesh().devices(axes), node.traffic(rule, cut)};
  Work work;
  work.forward = node.time(call, work);
  if (node.has_any_gradient() || (node.costs().trains && !rule.parameters.empty())) work.backward = 2 * work.forward;
  return work;
}

}  // namespace

/// Each letter is a loop.
bool rule_einsum(RuleView& node) {
  static constexpr const char* kNames[] = {"a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "m",
                                           "n", "o", "p", "q", "r", "s", "t", "u", "v", "w", "x", "y", "z"};
  Equation equation;
  if (!node.has_inputs(node.node().inputs.size()) || !read_equation(node, equation) || !fits(node, equation))
    return false;
  Rule rule;
  double flops = 2;
  for (const char letter : equation.letters) {
    if (letter < 'a' || letter > 'z') return false;
    Factor factor{kNames[letter - 'a'], {}, dim_of(equation.result, letter)};
    int64_t size = 1;
    for (size_t i = 0; i < equation.operands.size(); ++i) {
      factor.operands.push_back(dim_of(equation.operands[i], letter));
      if (factor.operands.back() != kNoDim) size = node.input_shape(i)[static_cast<size_t>(factor.operands.back())];
    }
    flops *= static_cast<double>(size);
    if (size > 1) rule.factors.push_back(std::move(factor));
  }
  for (const Cut& cut : node.cuts(rule)) node.add(rule, cut, product_work(node, rule, cut, flops));
  return true;
}

/// x[rows, k] sorted by expert, w[experts, k, n], ends[experts] of the experts' rows, y[rows, n]. If experts are cut,
/// rows of other devices' experts add zero to a device's partial sums.
bool rule_experts(RuleView& node) {
  if (!node.has_inputs(3)) return false;
  const Shape &x = node.input_shape(0), &weight = node.input_shape(1), &y = node.shape();
  if (x.size() != 2 || weight.size() != 3 || y.size() != 2 || y[0] != x[0]) return false;
  if (node.input_shape(2) != Shape{weight[0]} || weight[1] != x[1] || weight[2] != y[1]) return false;
  const Rule rule{{{"n", {kNoDim, 2, kUntouched}, 1},
                   {"k", {1, 1, kUntouched}, kNoDim},
                   {"experts", {kNoDim, 0, kUntouched}, kNoDim}}};
  for (const Cut& cut : node.cuts(rule))
    node.add(rule, cut, product_work(node, rule, cut, 2 * elements(x) * static_cast<double>(y[1])));
  return true;
}

/// x[batch, length, n] or [length, batch, n], states[layers, batch, ...], weights and biases. Results have the same
/// layouts. Steps depend on each other, so only the batch is cut.
bool rule_recurrence(RuleView& node) {
  if (node.node().inputs.empty() || node.node().results.empty() || node.input(0).results.size() != 1) return false;
  const Shape &x = node.input_shape(0), &y = node.shape();
  if (x.size() != 3 || y.size() != 3 || x[0] != y[0] || x[1] != y[1]) return false;
  const std::vector<std::string>& arguments = node.node().arguments;
  const bool is_batch_first = node.node().module.empty()
                                  ? !arguments.empty() && arguments.back() == "True"
                                  : node.node().description.find("batch_first=True") != std::string::npos;
  const int batch = is_batch_first ? 0 : 1;
  Factor factor{"batch", {batch}, batch};
  double weights = 0;
  for (size_t i = 1; i < node.node().inputs.size(); ++i) {
    if (node.input(i).results.empty()) return false;
    const Shape& shape = node.input_shape(i);
    factor.operands.push_back(shape.size() == 3 ? 1 : kNoDim);
    if (shape.size() < 3) weights += elements(shape);
  }
  Rule rule;
  for (const auto& [name, shape] : node.node().parameters) {
    rule.parameters.push_back(shape);
    weights += elements(shape);
  }
  factor.parameters.assign(rule.parameters.size(), kNoDim);
  factor.others.assign(node.node().results.size() - 1, 1);
  rule.factors = {std::move(factor)};
  const double flops = 2 * static_cast<double>(x[0]) * static_cast<double>(x[1]) * weights;
  for (const Cut& cut : node.cuts(rule)) node.add(rule, cut, product_work(node, rule, cut, flops));
  return true;
}

}  // namespace seqtile::planner
