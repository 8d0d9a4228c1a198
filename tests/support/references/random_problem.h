// tests/support/references/random_problem.h -- random planning problems: chains, trees, cycles of edges, nodes that
// follow others.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <random>
#include <vector>

#include "planner/graph/problem.h"

namespace seqtile::testing {

inline std::vector<double> drawn(std::mt19937& random, size_t count, uint32_t below) {
  std::vector<double> values(count);
  for (double& value : values) value = random() % below;
  return values;
}

/// Lets some nodes hold more memory at some steps.
inline void add_live(std::mt19937& random, planner::Problem& problem) {
  problem.num_steps = 1 + static_cast<int>(random() % 6);
  for (uint32_t count = random() % 12; count-- > 0;) {
    const auto node = random() % problem.costs.size();
    const int begin = static_cast<int>(random() % static_cast<uint32_t>(problem.num_steps)),
              length = 1 + static_cast<int>(random() % static_cast<uint32_t>(problem.num_steps - begin));
    problem.live.push_back(
        {static_cast<int>(node), begin, begin + length, drawn(random, problem.costs[node].size(), 20)});
  }
}

/// A problem of `least` to `most` nodes with up to 5 strategies; costs and sizes are small integers.
inline planner::Problem random_problem(std::mt19937& random, int least = 2, int most = 7) {
  planner::Problem problem;
  const int nodes = least + static_cast<int>(random() % static_cast<uint32_t>(most - least + 1));
  for (int node = 0; node < nodes; ++node) {
    const size_t strategies = 1 + random() % 5;
    problem.costs.push_back(drawn(random, strategies, 50));
    problem.memory.push_back(drawn(random, strategies, 20));
    problem.follows.push_back(-1);
  }
  if (nodes > 2 && problem.costs[0].size() == problem.costs[2].size() && random() % 2) problem.follows[2] = 0;
  for (uint32_t count = random() % static_cast<uint32_t>(2 * nodes); count-- > 0;) {
    const int a = static_cast<int>(random() % static_cast<uint32_t>(nodes)),
              b = static_cast<int>(random() % static_cast<uint32_t>(nodes));
    if (a == b) continue;
    problem.edges.push_back(
        {a, b,
         drawn(random, problem.costs[static_cast<size_t>(a)].size() * problem.costs[static_cast<size_t>(b)].size(),
               30)});
  }
  return problem;
}

}  // namespace seqtile::testing
