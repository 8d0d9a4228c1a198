// planner/solver/plan_costs.h -- where a plan's cost and memory come from, operator by operator.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <vector>

#include "planner/graph/graph.h"
#include "planner/graph/problem.h"

namespace seqtile::planner {

/// By operator, in the units of the problem; all of them together are the plan's objective.
struct OperatorCost {
  double compute = 0, communication = 0;  ///< of the strategy itself
  double reshard = 0;                     ///< of what it reads, and of operators that take its layout
  double memory = 0;                      ///< bytes
  double total() const { return compute + communication + reshard; }
};
std::vector<OperatorCost> operator_costs(const Graph& graph, const Problem& problem, const Choices& choices);

/// A tensor on its way from one operator to another, and what bringing it into the layout that is wanted costs. Where
/// the consumer merges that is a part of its leader's cost, and 0 here.
struct Transfer {
  int producer = 0, consumer = 0;
  double cost = 0;
};
std::vector<Transfer> transfers(const Graph& graph, const Problem& problem, const Choices& choices);

/// How a device holds a module's parameter where the module has this strategy. Where the strategy does not say it: cut
/// along the dimensions that it shares with what the module reads and leaves; a norm's is whole.
Layout parameter_layout(const Node& node, const Strategy& strategy, const std::string& parameter);

/// Bytes that a device holds while a plan runs (live_spans.h). A problem in seconds has the optimiser's state among its
/// parameters; of any other one layouts alone say what is held, and there is none.
struct MemoryTimeline {
  double parameters = 0;      ///< held all the time
  std::vector<double> bytes;  ///< after each operator; in training then after each one's backward pass, last one first
  double peak() const;
};
MemoryTimeline memory_timeline(const Graph& graph, const Problem& problem, const Choices& choices);

}  // namespace seqtile::planner
