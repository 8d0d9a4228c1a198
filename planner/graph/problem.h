// planner/graph/problem.h -- a planning problem in arrays: one strategy of every node, so that the sum is least.
// SPDX-License-Identifier: Apache-2.0
//
// The sum is that of the chosen strategies' costs and, for each edge, of the cost of bringing what its producer leaves
// to what its consumer wants. A node may follow another one, whose choice is then its own.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

namespace seqtile::planner {

struct Edge {
  int producer = 0, consumer = 0;
  std::vector<double> cost;  ///< [strategies of the producer][strategies of the consumer]
};

/// What a device holds for a while.
struct Live {
  int node = 0;
  int begin = 0, end = 0;     ///< steps [begin, end)
  std::vector<double> bytes;  ///< by strategy of the node
};

struct Problem {
  std::vector<std::vector<double>> costs;   ///< by node, by strategy
  std::vector<std::vector<double>> memory;  ///< bytes that a device holds all the time, the same way
  std::vector<int> follows;                 ///< by node: the node whose choice it takes, -1 for none
  std::vector<Edge> edges;
  int num_steps = 1;  ///< in which a plan runs
  std::vector<Live> live = {};

  int num_nodes() const { return static_cast<int>(costs.size()); }
};

/// A strategy for each node.
using Choices = std::vector<int>;

/// Errors: invalid_argument (arrays that do not fit together, numbers that are not finite, a node that follows itself).
void check(const Problem& problem);
/// The node at the end of the chain of those that follow.
int leader_of(const Problem& problem, int node);
double objective(const Problem& problem, const Choices& choices);
/// Bytes that a device holds, by step.
std::vector<double> memory_by_step(const Problem& problem, const Choices& choices);
/// The most of them.
double memory(const Problem& problem, const Choices& choices);

}  // namespace seqtile::planner
