// planner/graph/problem.h -- the planning problem in arrays: one strategy for each node, with the least sum of costs.
// SPDX-License-Identifier: Apache-2.0
//
// The sum has the cost of each chosen strategy and, for each edge, the cost of bringing the producer's layout to the
// layout that the consumer wants. A node that follows another node takes the same choice.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

namespace seqtile::planner {

struct Edge {
  int producer = 0, consumer = 0;
  std::vector<double> cost;  ///< [strategies of the producer][strategies of the consumer]
};

/// Bytes that a device holds for a while.
struct Live {
  int node = 0;
  int begin = 0, end = 0;     ///< steps [begin, end)
  std::vector<double> bytes;  ///< by strategy of the node
};

struct Problem {
  std::vector<std::vector<double>> costs;   ///< by node, by strategy
  std::vector<std::vector<double>> memory;  ///< bytes that a device holds all the time; by node, by strategy
  std::vector<int> follows;                 ///< by node: the node whose choice it takes, -1 for none
  std::vector<Edge> edges;
  int num_steps = 1;  ///< steps of a plan; Live counts in them
  std::vector<Live> live = {};

  int num_nodes() const { return static_cast<int>(costs.size()); }
};

/// By node: the index of the chosen strategy.
using Choices = std::vector<int>;

/// Errors: invalid_argument where arrays do not fit together, a number is not finite, or a node follows itself.
void check(const Problem& problem);
/// The node at the end of the chain of `follows`. A node that follows none is its own leader.
int leader_of(const Problem& problem, int node);
/// The sum of the chosen strategies' costs and of the edges' costs between them.
double objective(const Problem& problem, const Choices& choices);
/// Bytes that a device holds, by step.
std::vector<double> memory_by_step(const Problem& problem, const Choices& choices);
/// Bytes that a device holds at most, over all steps.
double memory(const Problem& problem, const Choices& choices);

}  // namespace seqtile::planner
