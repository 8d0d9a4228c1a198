// planner/solver/alternatives.cpp -- see alternatives.h.
// SPDX-License-Identifier: Apache-2.0
#include "planner/solver/alternatives.h"

#include "planner/solver/restriction.h"
#include "planner/solver/solver.h"

namespace seqtile::planner {
std::vector<Alternative> alternatives_of(const Problem& problem, int node) {
  const int leader = leader_of(problem, node);
  std::vector<char> shares;
  for (int other = 0; other < problem.num_nodes(); ++other) shares.push_back(leader_of(problem, other) == leader);
  std::vector<Alternative> alternatives(problem.costs[static_cast<size_t>(node)].size());
  Allowed allowed = all_strategies(problem);
  for (size_t choice = 0; choice < alternatives.size(); ++choice) {
    for (size_t other = 0; other < shares.size(); ++other) {
      if (!shares[other]) continue;
      alternatives[choice].own += problem.costs[other][choice];
      allowed[other] = {static_cast<int>(choice)};
    }
    alternatives[choice].objective = solve(restricted(problem, allowed)).objective;
  }
  return alternatives;
}

}  // namespace seqtile::planner
