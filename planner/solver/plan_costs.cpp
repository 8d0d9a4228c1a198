// planner/solver/plan_costs.cpp -- see plan_costs.h.
// SPDX-License-Identifier: Apache-2.0
#include "planner/solver/plan_costs.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "planner/compat/compat_costs.h"
#include "planner/graph/node_view.h"
#include "planner/solver/live_spans.h"

namespace seqtile::planner {
namespace {

const Strategy& chosen(const Graph& graph, const Choices& choices, size_t node) {
  return graph.nodes[node].strategies[static_cast<size_t>(choices[node])];
}

double cost_of(const Edge& edge, const Problem& problem, const Choices& choices) {
  const size_t columns = problem.costs[static_cast<size_t>(edge.consumer)].size();
  return edge.cost[static_cast<size_t>(choices[static_cast<size_t>(edge.producer)]) * columns +
                   static_cast<size_t>(choices[static_cast<size_t>(edge.consumer)])];
}

}  // namespace

std::vector<OperatorCost> operator_costs(const Graph& graph, const Problem& problem, const Choices& choices) {
  std::vector<OperatorCost> costs(graph.nodes.size());
  for (size_t node = 0; node < costs.size(); ++node) {
    const Strategy& strategy = chosen(graph, choices, node);
    const auto choice = static_cast<size_t>(choices[node]);
    const double own = strategy.compute + strategy.communication, all = problem.costs[node][choice];
    // The rounding error of two equal sums is no cost.
    const double more = std::abs(all - own) <= 1e-12 * std::abs(all) ? 0 : all - own;
    const double held = problem.memory[node][choice] + strategy.activation + strategy.gradient;
    costs[node] = {strategy.compute, strategy.communication, more, held};
  }
  for (const Edge& edge : problem.edges)
    costs[static_cast<size_t>(edge.consumer)].reshard += cost_of(edge, problem, choices);
  return costs;
}

std::vector<Transfer> transfers(const Graph& graph, const Problem& problem, const Choices& choices) {
  std::map<std::pair<int, int>, double> costs;
  for (const Edge& edge : problem.edges) costs[{edge.producer, edge.consumer}] += cost_of(edge, problem, choices);
  std::vector<Transfer> result;
  for (int consumer = 0; consumer < static_cast<int>(graph.nodes.size()); ++consumer)
    for (const int producer : graph.nodes[static_cast<size_t>(consumer)].inputs) {
      Transfer& transfer = result.emplace_back(Transfer{producer, consumer, 0});
      int from = producer;  // a merged node's result comes from its leader
      while (!costs.contains({from, consumer}) && graph.nodes[static_cast<size_t>(from)].merges)
        from = graph.nodes[static_cast<size_t>(from)].inputs.front();
      const auto found = costs.find({from, consumer});
      if (found == costs.end()) continue;
      transfer.cost = std::exchange(found->second, 0);  // counted once where two inputs come from one leader
    }
  return result;
}

Layout parameter_layout(const Node& node, const Strategy& strategy, const std::string& parameter) {
  if (const auto held = strategy.parameters.find(parameter); held != strategy.parameters.end()) return held->second;
  const auto found = node.parameters.find(parameter);
  if (found == node.parameters.end() || node.results.size() != 1) return {};
  const auto last = static_cast<int>(node.results.front().shape.size()) - 1;
  const Layout read =
      strategy.operands.empty() || strategy.operands.front().empty() ? Layout() : strategy.operands.front().front();
  const Layout left = strategy.results.front();
  const bool is_linear = node.module == "Linear", is_conv = node.module.starts_with("Conv"),
             is_embedding = node.module == "Embedding", is_batch_norm = node.module.starts_with("BatchNorm");
  if (is_embedding) return Layout().with(0, left.partial()).with(1, left.axes_of(last));
  if (!is_linear && !is_conv && !is_batch_norm) return {};
  const int features = is_linear ? last : 1;
  const Layout columns = Layout().with(0, left.axes_of(features));
  return found->second.size() < 2 ? columns : columns.with(1, read.axes_of(features));
}

namespace {

/// The memory of a strategy that does not give its own, computed from layouts.
Strategy held_by_layouts(const Graph& graph, const Node& node, const Strategy& strategy) {
  Strategy held;
  for (size_t member = 0; member < node.results.size() && !is_view(node); ++member)
    held.activation += local_elements(graph.mesh, node.results[member].shape, strategy.results[member]) *
                       static_cast<double>(node.results[member].element_bytes);
  for (const auto& [name, shape] : node.parameters)
    held.memory += local_elements(graph.mesh, shape, parameter_layout(node, strategy, name)) *
                   static_cast<double>(node.results.empty() ? 4 : node.results.front().element_bytes);
  if (node.op == "get_attr") held.memory += std::exchange(held.activation, 0);
  if (graph.is_training && (node.op != "get_attr" || node.role == Role::parameter)) held.gradient = held.memory;
  return held;
}

/// The plan as a problem in which every node has one strategy.
Problem problem_by_layouts(const Graph& graph, const Choices& choices) {
  Problem problem;
  Graph planned = graph;
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    std::vector<Strategy>& strategies = planned.nodes[i].strategies;
    strategies = {held_by_layouts(graph, graph.nodes[i], chosen(graph, choices, i))};
    problem.memory.push_back({strategies.front().memory});
  }
  add_live_spans(planned, problem);
  return problem;
}

MemoryTimeline timeline_of(const Problem& problem, const Choices& choices) {
  MemoryTimeline timeline{0, memory_by_step(problem, choices)};
  for (size_t node = 0; node < choices.size(); ++node)
    timeline.parameters += problem.memory[node][static_cast<size_t>(choices[node])];
  return timeline;
}

}  // namespace

double MemoryTimeline::peak() const { return bytes.empty() ? 0 : std::ranges::max(bytes); }

MemoryTimeline memory_timeline(const Graph& graph, const Problem& problem, const Choices& choices) {
  if (problem.live.empty()) return timeline_of(problem_by_layouts(graph, choices), Choices(choices.size(), 0));
  return timeline_of(problem, choices);
}

}  // namespace seqtile::planner
