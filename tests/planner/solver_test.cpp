// tests/planner/solver_test.cpp -- plans against the best of all plans, and against closed forms.
// SPDX-License-Identifier: Apache-2.0
#include "planner/solver/solver.h"

#include <catch2/catch.hpp>

#include <cmath>
#include <limits>
#include <random>

#include "planner/graph/graph_json.h"
#include "tests/planner/plan_files.h"
#include "tests/support/references/random_problem.h"

namespace seqtile::testing {
namespace {

using namespace planner;
constexpr double kNone = std::numeric_limits<double>::infinity();

struct Best {
  double objective = kNone, least_memory = kNone;
};

/// The best plan, by trying all plans.
Best brute_force(const Problem& problem, double budget) {
  Best best;
  Choices choices(problem.costs.size());
  while (true) {
    bool follows = true;
    for (size_t node = 0; node < choices.size(); ++node)
      follows = follows &&
                (problem.follows[node] < 0 || choices[node] == choices[static_cast<size_t>(problem.follows[node])]);
    if (follows) {
      const double held = memory(problem, choices);
      best.least_memory = std::min(best.least_memory, held);
      if (held <= budget) best.objective = std::min(best.objective, objective(problem, choices));
    }
    size_t node = 0;
    for (; node < choices.size() && ++choices[node] == static_cast<int>(problem.costs[node].size()); ++node)
      choices[node] = 0;
    if (node == choices.size()) return best;
  }
}

/// A chain of layers, each cut by the batch (a sum of its weight's gradient) or by its columns (of its input's).
Problem layers(int count, double of_weight, double of_activation) {
  Problem problem;
  for (int layer = 0; layer < count; ++layer) {
    problem.costs.push_back({of_weight, layer == 0 ? 0 : of_activation});
    problem.memory.push_back({1, 0.5});
    problem.follows.push_back(-1);
    if (layer > 0) problem.edges.push_back({layer - 1, layer, {0, 10 * of_activation, 10 * of_activation, 0}});
  }
  return problem;
}

/// A tensor that all nodes of a chain read, with `strategies` for each node, and the least cost: the shortest way along
/// the chain, over all strategies of the tensor.
std::pair<Problem, double> shared_by_chain(size_t readers, size_t strategies) {
  constexpr size_t kOfTensor = 3;
  std::mt19937 random(3);
  const auto numbers = [&](size_t count) {
    std::vector<double> values;
    for (size_t i = 0; i < count; ++i) values.push_back(static_cast<double>(random() % 100));
    return values;
  };
  Problem problem;
  std::vector<std::vector<double>> ways(kOfTensor);  // by the tensor's strategy and the last node's
  for (size_t node = 0; node <= readers; ++node) {
    const size_t own = node == 0 ? kOfTensor : strategies;
    const std::vector<double> cost = numbers(own), read = numbers(kOfTensor * own), along = numbers(strategies * own);
    problem.costs.push_back(cost);
    problem.memory.emplace_back(own);
    problem.follows.push_back(-1);
    if (node > 0) problem.edges.push_back({0, static_cast<int>(node), read});
    if (node > 1) problem.edges.push_back({static_cast<int>(node) - 1, static_cast<int>(node), along});
    for (size_t shared = 0; shared < kOfTensor; ++shared) {
      std::vector<double> least;
      for (size_t i = 0; i < strategies && node > 0; ++i) {
        double before = node > 1 ? kNone : problem.costs[0][shared];
        for (size_t from = 0; node > 1 && from < strategies; ++from)
          before = std::min(before, ways[shared][from] + along[from * strategies + i]);
        least.push_back(before + cost[i] + read[shared * strategies + i]);
      }
      ways[shared] = least;
    }
  }
  double best = kNone;
  for (const std::vector<double>& way : ways) best = std::min(best, *std::min_element(way.begin(), way.end()));
  return {problem, best};
}

}  // namespace

TEST_CASE("plan solver: random problems, with and without a budget, have the optimum of all plans", "[plan]") {
  std::mt19937 random(1);
  int with_budget = 0, infeasible = 0;
  for (int trial = 0; trial < 3000; ++trial) {
    Problem problem = random_problem(random);
    if (random() % 2) add_live(random, problem);
    SolveOptions options;
    if (random() % 2) options.memory_budget = 10.0 + random() % 60, ++with_budget;
    if (random() % 8 == 0) options.memory_budget = brute_force(problem, kNone).least_memory - random() % 2;
    if (random() % 4 == 0) options.table_limit = 10;  // bounds instead of tables, closed by branching
    const Solution solution = solve(problem, options);
    const Best best = brute_force(problem, options.memory_budget);
    INFO("trial " << trial);
    REQUIRE(solution.is_feasible == (best.objective < kNone));
    if (options.memory_budget < kNone) {
      REQUIRE(solution.smallest_budget >= best.least_memory);
      REQUIRE(solution.smallest_budget_bound <= best.least_memory);
      // The refusal is proven.
      REQUIRE((solution.is_feasible || solution.smallest_budget_bound > options.memory_budget));
      if (problem.live.empty()) REQUIRE(solution.smallest_budget == solution.smallest_budget_bound);
    }
    if (!solution.is_feasible) {
      ++infeasible;
      continue;
    }
    REQUIRE(solution.objective == Approx(best.objective));
    REQUIRE(solution.lower_bound <= best.objective + 1e-9);
    REQUIRE(solution.gap() == 0);
    REQUIRE(memory(problem, solution.choices) <= options.memory_budget);
  }
  CHECK(with_budget > 1000);
  CHECK(infeasible > 50);
}

TEST_CASE("plan solver: where nothing may be searched the bound is certified and the gap is told", "[plan]") {
  std::mt19937 random(2);
  int open = 0;
  for (int trial = 0; trial < 500; ++trial) {
    const Problem problem = random_problem(random);
    const Solution solution = solve(problem, {.table_limit = 6, .most_searches = 1});
    const Best best = brute_force(problem, kNone);
    REQUIRE(solution.lower_bound <= best.objective + 1e-9);
    REQUIRE(solution.objective >= best.objective - 1e-9);
    open += solution.gap() > 0;
  }
  CHECK(open > 10);
}

TEST_CASE("plan solver: layers in a row reduce all weights or all activations but one", "[plan]") {
  for (const int count : {1, 2, 5, 20}) {
    CHECK(solve(layers(count, 3, 5)).objective == std::min(3.0 * count, 5.0 * (count - 1)));
    CHECK(solve(layers(count, 7, 2)).objective == std::min(7.0 * count, 2.0 * (count - 1)));
  }
}

// A solver in quadratic time would take a quarter of an hour for these problems.
TEST_CASE("plan solver: a tensor that all nodes of a long chain read does not make planning slow", "[plan]") {
  for (const size_t strategies : {3, 1}) {
    const auto [problem, best] = shared_by_chain(40000, strategies);
    const Solution solution = solve(problem);
    INFO(strategies << " strategies");
    CHECK(solution.objective == best);
    CHECK(solution.is_exact());
    CHECK(solution.width <= (strategies == 1 ? 1 : 3));  // the tensor and a node's neighbour in the chain
  }
}

TEST_CASE("plan solver: a budget between the leanest and the best plan costs something, and is kept", "[plan]") {
  const Problem problem = *read_plan_file(plan_file("resnet18_b128_32px_2x2")).problem;
  const Solution free = solve(problem);
  const double least = solve(problem, {.memory_budget = 0}).smallest_budget;
  double before = free.objective;
  for (const double share : {0.98, 0.9, 0.7, 0.3, 0.05}) {
    const double budget = least + share * (free.memory - least);
    const Solution solution = solve(problem, {.memory_budget = budget});
    INFO("share " << share);
    CHECK(solution.is_feasible);
    CHECK(solution.memory <= budget);
    CHECK(solution.objective >= before);
    CHECK(solution.is_exact());
    before = solution.objective;
  }
  CHECK_FALSE(solve(problem, {.memory_budget = least - 1}).is_feasible);
  CHECK(solve(problem, {.memory_budget = least}).is_feasible);
}

TEST_CASE("plan solver: arrays that do not fit together are refused", "[plan]") {
  const Problem good = layers(3, 1, 1);
  const auto refused = [&](const char* why, const std::function<void(Problem&)>& change) {
    Problem problem = good;
    change(problem);
    CHECK_THROWS_WITH(solve(problem), Catch::Contains(why));
  };
  refused("without nodes", [](Problem& p) { p = {}; });
  refused("no strategy", [](Problem& p) { p.costs[1].clear(); });
  refused("2 costs and 1 size", [](Problem& p) { p.memory[0].pop_back(); });
  refused("not finite", [](Problem& p) { p.costs[0][1] = NAN; });
  refused("nodes are 0..2", [](Problem& p) { p.edges[0].consumer = 3; });
  refused("2 costs and 1 size for a while", [](Problem& p) { p.live = {{0, 0, 1, {1}}}; });
  refused("steps 0..2, there are 1", [](Problem& p) { p.live = {{0, 0, 2, {1, 1}}}; });
  refused("nodes are 0..2", [](Problem& p) { p.live = {{3, 0, 1, {1, 1}}}; });
  refused("node 1 is negative", [](Problem& p) { p.memory[1][0] = -1; });
  refused("sum of the costs is not finite", [](Problem& p) {
    for (auto& costs : p.costs) costs.assign(2, 1e308);
  });
  refused("sum of the sizes is not finite", [](Problem& p) {
    for (auto& sizes : p.memory) sizes.assign(2, 1e308);
  });
  refused("4 are wanted", [](Problem& p) { p.edges[1].cost.pop_back(); });
  refused("in a circle, 0 -> 1 -> 0, so that none of them chooses; give one -1 in \"s_follow\" and no \"alias\"",
          [](Problem& p) {
            p.follows = {1, 0, -1};
          });
  refused("in a circle, 2 -> 2, so", [](Problem& p) { p.follows = {-1, -1, 2}; });
  refused("another number of strategies", [](Problem& p) {
    p.follows[2] = 1;
    p.costs[1].push_back(1), p.memory[1].push_back(1);
  });
}

}  // namespace seqtile::testing
