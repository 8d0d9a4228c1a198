// planner/solver/restriction.cpp -- see restriction.h.
// SPDX-License-Identifier: Apache-2.0
#include "planner/solver/restriction.h"

#include <numeric>
#include <utility>

namespace seqtile::planner {
namespace {

std::vector<double> chosen(const std::vector<double>& values, const std::vector<int>& strategies) {
  std::vector<double> result;
  for (const int strategy : strategies) result.push_back(values[static_cast<size_t>(strategy)]);
  return result;
}

}  // namespace

Allowed all_strategies(const Problem& problem) {
  Allowed allowed;
  for (const auto& costs : problem.costs) {
    std::vector<int>& strategies = allowed.emplace_back(costs.size());
    std::iota(strategies.begin(), strategies.end(), 0);
  }
  return allowed;
}

Problem restricted(const Problem& problem, const Allowed& allowed) {
  Problem result = problem;
  for (Live& live : result.live) live.bytes = chosen(live.bytes, allowed[static_cast<size_t>(live.node)]);
  for (size_t node = 0; node < allowed.size(); ++node) {
    result.costs[node] = chosen(problem.costs[node], allowed[node]);
    result.memory[node] = chosen(problem.memory[node], allowed[node]);
  }
  for (Edge& edge : result.edges) {
    const auto producer = static_cast<size_t>(edge.producer), consumer = static_cast<size_t>(edge.consumer);
    const std::vector<double> all = std::move(edge.cost);
    edge.cost.clear();
    for (const int i : allowed[producer])
      for (const int j : allowed[consumer])
        edge.cost.push_back(all[static_cast<size_t>(i) * problem.costs[consumer].size() + static_cast<size_t>(j)]);
  }
  return result;
}

Choices unrestricted(const Allowed& allowed, const Choices& choices) {
  Choices result;
  for (size_t node = 0; node < choices.size(); ++node)
    result.push_back(allowed[node][static_cast<size_t>(choices[node])]);
  return result;
}

}  // namespace seqtile::planner
