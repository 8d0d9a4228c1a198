// tests/planner/restriction_test.cpp -- problems in which nodes have only some of their strategies.
// SPDX-License-Identifier: Apache-2.0
#include "planner/solver/restriction.h"

#include <catch2/catch.hpp>

#include <algorithm>
#include <limits>

#include "planner/solver/solver.h"
#include "tests/support/references/random_problem.h"

namespace seqtile::testing {
namespace {

using planner::Allowed;
using planner::Problem;

/// Some of the strategies of each node, the same ones for nodes that share a choice.
Allowed some_of(const Problem& problem, std::mt19937& random) {
  Allowed allowed = planner::all_strategies(problem);
  for (int node = 0; node < problem.num_nodes(); ++node) {
    std::vector<int>& left = allowed[static_cast<size_t>(node)];
    const int leader = planner::leader_of(problem, node);
    if (leader < node) left = allowed[static_cast<size_t>(leader)];
    else if (left.size() > 1) std::erase_if(left, [&](int i) { return i != left.front() && random() % 2; });
  }
  return allowed;
}

/// The least objective of the whole problem over all choices that are left.
double least(const Problem& problem, const Allowed& allowed) {
  double best = std::numeric_limits<double>::infinity();
  planner::Choices choices(allowed.size());
  const auto search = [&](const auto& self, size_t node) -> void {
    if (node == allowed.size()) {
      best = std::min(best, planner::objective(problem, choices));
      return;
    }
    const auto leader = static_cast<size_t>(planner::leader_of(problem, static_cast<int>(node)));
    for (const int choice : allowed[node]) {
      if (leader < node && choice != choices[leader]) continue;
      choices[node] = choice;
      self(self, node + 1);
    }
  };
  search(search, 0);
  return best;
}

}  // namespace

TEST_CASE("plan: a restricted problem's best plan is the best of those that are left", "[plan]") {
  std::mt19937 random(3);
  int smaller = 0;
  for (int i = 0; i < 300; ++i) {
    const Problem problem = random_problem(random, 2, 5);
    const Allowed allowed = some_of(problem, random);
    const planner::Solution solution = planner::solve(planner::restricted(problem, allowed));
    const planner::Choices choices = planner::unrestricted(allowed, solution.choices);
    CHECK(solution.objective == Approx(least(problem, allowed)));
    CHECK(planner::objective(problem, choices) == Approx(solution.objective));
    CHECK(planner::memory(problem, choices) == Approx(solution.memory));
    for (size_t node = 0; node < choices.size(); ++node)
      CHECK(std::ranges::find(allowed[node], choices[node]) != allowed[node].end());
    smaller += solution.objective > planner::solve(problem).objective;
  }
  CHECK(smaller > 50);  // the missing strategies matter
}

}  // namespace seqtile::testing
