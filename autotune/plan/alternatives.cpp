// autotune/plan/alternatives.cpp -- see alternatives.h.
// SPDX-License-Identifier: Apache-2.0
#include "autotune/plan/alternatives.h"

#include "autotune/plan/solver.h"

namespace seqtile::plan {
namespace {

/// The problem in which the nodes that share a choice have no other.
Problem with_choice(const Problem& problem, const std::vector<char>& shares, size_t choice) {
  Problem fixed = problem;
  for (size_t node = 0; node < shares.size(); ++node) {
    if (!shares[node]) continue;
    fixed.costs[node] = {problem.costs[node][choice]};
    fixed.memory[node] = {problem.memory[node][choice]};
  }
  for (Live& live : fixed.live)
    if (shares[static_cast<size_t>(live.node)]) live.bytes = {live.bytes[choice]};
  for (size_t e = 0; e < problem.edges.size(); ++e) {
    const Edge& edge = problem.edges[e];
    const auto producer = static_cast<size_t>(edge.producer), consumer = static_cast<size_t>(edge.consumer);
    const size_t rows = problem.costs[producer].size(), columns = problem.costs[consumer].size();
    std::vector<double>& cost = fixed.edges[e].cost;
    cost.clear();
    for (size_t i = 0; i < rows; ++i)
      for (size_t j = 0; j < columns; ++j)
        if ((!shares[producer] || i == choice) && (!shares[consumer] || j == choice))
          cost.push_back(edge.cost[i * columns + j]);
  }
  return fixed;
}

}  // namespace

std::vector<Alternative> alternatives_of(const Problem& problem, int node) {
  const int leader = leader_of(problem, node);
  std::vector<char> shares;
  for (int other = 0; other < problem.num_nodes(); ++other) shares.push_back(leader_of(problem, other) == leader);
  std::vector<Alternative> alternatives(problem.costs[static_cast<size_t>(node)].size());
  for (size_t choice = 0; choice < alternatives.size(); ++choice) {
    for (size_t other = 0; other < shares.size(); ++other)
      if (shares[other]) alternatives[choice].own += problem.costs[other][choice];
    alternatives[choice].objective = solve(with_choice(problem, shares, choice)).objective;
  }
  return alternatives;
}

}  // namespace seqtile::plan
