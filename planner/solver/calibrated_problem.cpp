// planner/solver/calibrated_problem.cpp -- see calibrated_problem.h.
// SPDX-License-Identifier: Apache-2.0
#include "planner/solver/calibrated_problem.h"

#include "planner/graph/reshape_maps.h"
#include "planner/solver/live_spans.h"

namespace seqtile::planner {
namespace {

/// Numbers of the layouts of a tensor and of its gradient at one end of an edge, by strategy.
struct Ends {
  std::vector<int> value, gradient;

  void add(const LayoutSpace& layouts, Layout of_value, Layout of_gradient) {
    value.push_back(layouts.number_of(of_value));
    gradient.push_back(layouts.number_of(of_gradient));
  }
};

/// Adds the costs of one tensor, [from][to]. The tensor changes its layout `passes` times, its gradient `gradients`
/// times; a fraction is a share of one change.
void add_costs(ReshardPaths& paths, const Ends& from, const Ends& to, int passes, double gradients, double* cost) {
  for (size_t i = 0; i < from.value.size(); ++i)
    for (size_t j = 0; j < to.value.size(); ++j, ++cost) {
      *cost += passes * paths.seconds(from.value[i], to.value[j]);
      if (gradients > 0) *cost += gradients * paths.seconds(to.gradient[j], from.gradient[i]);
    }
}

/// Whether a consumer reads a member of the producer. getitem on a tuple reads only the members that it names; a name
/// below 0 counts from the end. A name that is out of range reads all.
bool takes(const Node& consumer, const Node& producer, size_t member) {
  if (!producer.is_tuple || operator_name(consumer) != "getitem" || consumer.arguments.size() < 2) return true;
  const auto size = static_cast<int>(producer.results.size());
  for (size_t i = 1; i < consumer.arguments.size(); ++i) {
    const auto wanted = number_of(consumer.arguments[i]);
    if (!wanted || *wanted < -size || *wanted >= size) return true;
    if (static_cast<int>(member) == (*wanted < 0 ? *wanted + size : *wanted)) return true;
  }
  return false;
}

/// By node: the number of nodes that read it.
std::vector<int> count_readers(const Graph& graph) {
  std::vector<int> readers(graph.nodes.size(), 0);
  for (const Node& node : graph.nodes)
    for (const int input : node.inputs) ++readers[static_cast<size_t>(input)];
  return readers;
}

/// The costs of changing the layout of one operand. A parameter's gradient is summed over devices once, however many
/// operators read the parameter (`readers`): each reader has a share of that price.
Edge make_edge(const Graph& graph, int consumer, size_t operand, bool has_gradient, int readers,
               ReshardTables& tables) {
  const Node& to = graph.nodes[static_cast<size_t>(consumer)];
  Edge edge{to.inputs[operand], consumer, {}};
  const Node& from = graph.nodes[static_cast<size_t>(edge.producer)];
  // A parameter that is gathered for the forward pass is not kept; it is gathered again for the backward pass.
  const bool is_parameter = from.op == "get_attr";
  const int passes = is_parameter && has_gradient ? 2 : 1;
  const double gradients = !has_gradient ? 0 : is_parameter ? 1.0 / readers : 1;
  edge.cost.assign(from.strategies.size() * to.strategies.size(), 0.0);
  for (size_t member = 0; member < from.results.size(); ++member) {
    if (!takes(to, from, member)) continue;
    ReshardPaths& paths = tables.of(from.results[member].shape, from.results[member].element_bytes);
    Ends left, wanted;
    for (const Strategy& strategy : from.strategies) {
      const Layout layout = strategy.results[member];
      left.add(paths.layouts(), layout, layout.with_partial(0));
    }
    for (const Strategy& strategy : to.strategies) {
      const Layout layout = strategy.operands[operand][member];
      wanted.add(paths.layouts(), layout.with_partial(0), layout);
    }
    add_costs(paths, left, wanted, passes, gradients, edge.cost.data());
  }
  return edge;
}

}  // namespace

Problem calibrated_problem(const Graph& graph, const CalibratedStrategies& strategies, const CalibratedCosts& costs,
                           ReshardTables& paths) {
  Problem problem;
  const std::vector<char> has_gradient = nodes_with_gradients(graph);
  const std::vector<int> readers = count_readers(graph);
  problem.follows = strategies.follows;
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    const Node& node = graph.nodes[n];
    std::vector<double>& of_node = problem.costs.emplace_back();
    std::vector<double>& memory = problem.memory.emplace_back();
    for (const Strategy& strategy : node.strategies) {
      of_node.push_back(strategy.compute + strategy.communication);
      memory.push_back(strategy.memory);
    }
    // Linears of one input change its layout once, for the first of them.
    for (size_t operand = problem.follows[n] >= 0 ? 1 : 0; operand < node.inputs.size(); ++operand)
      problem.edges.push_back(make_edge(graph, static_cast<int>(n), operand,
                                        costs.trains && has_gradient[static_cast<size_t>(node.inputs[operand])],
                                        readers[static_cast<size_t>(node.inputs[operand])], paths));
  }
  add_live_spans(graph, problem);
  return problem;
}

}  // namespace seqtile::planner
