// planner/strategies/calibrated_strategies.cpp -- see calibrated_strategies.h.
// SPDX-License-Identifier: Apache-2.0
#include "planner/strategies/calibrated_strategies.h"

#include <algorithm>
#include <map>

#include "planner/strategies/operator_families.h"

namespace seqtile::planner {
namespace {

bool is_float(const TensorType& type) { return type.dtype.starts_with("f") || type.dtype.starts_with("bf"); }

/// Requires: `node` is a get_attr.
bool is_trained(const Node& node) { return node.role == Role::parameter && is_float(node.results.front()); }

void add_all(RuleView& node, const Rule& rule, const Work& work) {
  for (const Cut& cut : node.cuts(rule)) node.add(rule, cut, work);
}

/// An input of the model has any layout free of charge.
bool rule_placeholder(RuleView& node) {
  if (!node.has_inputs(0)) return false;
  add_all(node, broadcast_rule(node), {});
  return true;
}

/// A trained parameter has a gradient and optimiser state. Other parameters and buffers have neither.
bool rule_attribute(RuleView& node) {
  if (!node.has_inputs(0)) return false;
  Rule rule = broadcast_rule(node);
  Work work;
  if (is_trained(node.node())) {
    rule.parameters = {node.shape()};
    for (Factor& factor : rule.factors) factor.parameters = {factor.result};
    work.keeps_result = false;
  }
  add_all(node, rule, work);
  return true;
}

/// The least rank of the members of an input.
size_t common_rank(const Node& input) {
  size_t rank = kMaxRank;
  for (const TensorType& type : input.results) rank = std::min(rank, type.shape.size());
  return input.results.empty() ? 0 : rank;
}

/// The model's results may stay cut, but may not be partial sums.
bool rule_output(RuleView& node) {
  size_t rank = 0;
  for (size_t i = 0; i < node.node().inputs.size(); ++i) rank = std::max(rank, common_rank(node.input(i)));
  Rule rule;
  for (size_t dim = 0; dim < rank; ++dim) {
    Factor factor{dim_name(dim), {}, kUntouched};
    for (size_t i = 0; i < node.node().inputs.size(); ++i)
      factor.operands.push_back(dim < common_rank(node.input(i)) ? static_cast<int>(dim) : kUntouched);
    rule.factors.push_back(std::move(factor));
  }
  add_all(node, rule, {});
  return true;
}

/// Adds one strategy for an unknown operator: every device computes all of it and holds all its parameters.
void keep_whole(RuleView& node) {
  Rule rule;
  Work work;
  if (!node.node().results.empty()) {
    for (const auto& [name, shape] : node.node().parameters) rule.parameters.push_back(shape);
    work.forward = node.time({"elementwise", node.dtype(), {}, 0, node.traffic(rule, {})}, work);
    if (node.costs().trains && (node.has_any_gradient() || !rule.parameters.empty())) work.backward = work.forward;
  }
  node.add(rule, {}, work);
}

Family family_of(const Node& node) {
  if (node.op == "placeholder") return rule_placeholder;
  if (node.op == "output") return rule_output;
  if (node.op == "get_attr") return rule_attribute;
  return family_of_operator(node);
}

class Generator {
 public:
  Generator(Graph& graph, const CalibratedCosts& costs, ReshardTables& paths)
      : graph_(graph), costs_(costs), paths_(paths), has_gradient_(nodes_with_gradients(graph)) {
    result_.follows.assign(graph.nodes.size(), -1);
    result_.is_known.assign(graph.nodes.size(), true);
    for (int node = 0; node < static_cast<int>(graph.nodes.size()); ++node)
      if (const Node& at = graph.nodes[static_cast<size_t>(node)]; is_linear(at) && !at.inputs.empty())
        linears_of_[at.inputs.front()].push_back(node);
  }

  CalibratedStrategies run() {
    for (auto& [input, linears] : linears_of_)
      if (!add_linears(linears))
        for (const int node : linears) add_linears({node});
    for (Node& node : graph_.nodes) {
      if (!node.strategies.empty() && is_linear(node)) continue;
      RuleView view(graph_, node, costs_, paths_, has_gradient_);
      const Family family = family_of(node);
      if (family && family(view)) continue;
      result_.unknown.add(node);
      result_.is_known[static_cast<size_t>(&node - graph_.nodes.data())] = false;
      if (node.strategies.empty()) keep_whole(view);
    }
    return std::move(result_);
  }

 private:
  /// Rules the nodes as one kernel. Returns false if one of them does not have the form of a linear.
  bool add_linears(const std::vector<int>& nodes) {
    std::vector<RuleView> views;
    for (const int node : nodes)
      views.emplace_back(graph_, graph_.nodes[static_cast<size_t>(node)], costs_, paths_, has_gradient_);
    if (!rule_linears(views)) return false;
    for (size_t i = 1; i < nodes.size(); ++i) result_.follows[static_cast<size_t>(nodes[i])] = nodes.front();
    return true;
  }

  Graph& graph_;
  const CalibratedCosts& costs_;
  ReshardTables& paths_;
  const std::vector<char> has_gradient_;
  std::map<int, std::vector<int>> linears_of_;  ///< by their input
  CalibratedStrategies result_;
};

}  // namespace

std::vector<char> nodes_with_gradients(const Graph& graph) {
  std::vector<char> result;
  for (const Node& node : graph.nodes) {
    bool has_one = node.op == "get_attr" ? is_trained(node) : !node.parameters.empty();
    for (const int input : node.inputs) has_one = has_one || result[static_cast<size_t>(input)];
    result.push_back(has_one && !node.results.empty() && is_float(node.results.front()));
  }
  return result;
}

CalibratedStrategies generate_calibrated_strategies(Graph& graph, const CalibratedCosts& costs, ReshardTables& paths) {
  return Generator(graph, costs, paths).run();
}

}  // namespace seqtile::planner
