// planner/solver/plan_costs.h -- attributes a plan's cost and memory to its operators.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <vector>

#include "planner/graph/graph.h"
#include "planner/graph/problem.h"

namespace seqtile::planner {

/// Costs of one operator, in the units of the problem. Their total over all operators is the plan's objective.
struct OperatorCost {
  double compute = 0, communication = 0;  ///< of the chosen strategy
  double reshard = 0;                     ///< changes of layout of its inputs, and costs of nodes that merged into it
  double memory = 0;                      ///< bytes
  double total() const { return compute + communication + reshard; }
};
/// Costs by node of the graph.
std::vector<OperatorCost> operator_costs(const Graph& graph, const Problem& problem, const Choices& choices);

/// A tensor that an operator passes to another one, and the cost of changing it to the layout that the consumer wants.
/// The cost is 0 where the consumer merges: there the leader's cost includes it.
struct Transfer {
  int producer = 0, consumer = 0;
  double cost = 0;
};
/// By consumer, and by input of the consumer.
std::vector<Transfer> transfers(const Graph& graph, const Problem& problem, const Choices& choices);

/// The layout of a module's parameter under a strategy. A parameter that the strategy does not name is cut along the
/// dimensions that it shares with the module's input and result. The parameter of a norm is whole.
Layout parameter_layout(const Node& node, const Strategy& strategy, const std::string& parameter);

/// Bytes that a device holds while a plan runs (live_spans.h). In a problem in seconds the parameters include the
/// optimiser's state. In any other problem the layouts alone give the bytes, without optimiser state.
struct MemoryTimeline {
  double parameters = 0;      ///< held all the time
  std::vector<double> bytes;  ///< after each operator; in training then after each backward pass, last operator first
  double peak() const;
};
MemoryTimeline memory_timeline(const Graph& graph, const Problem& problem, const Choices& choices);

}  // namespace seqtile::planner
