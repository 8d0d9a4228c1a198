// tests/planner/ilp_test.cpp -- plans against a solver of integer programs, if there is one.
// SPDX-License-Identifier: Apache-2.0
#include "tests/support/references/ilp.h"

#include <catch2/catch.hpp>

#include <limits>
#include <random>

#include "planner/compat/compat_problem.h"
#include "planner/graph/graph_json.h"
#include "tests/planner/plan_files.h"
#include "tests/planner/planned.h"
#include "tests/planner/sample_graphs.h"
#include "tests/support/references/random_problem.h"

namespace seqtile::testing {
namespace {

using namespace planner;
constexpr double kNone = std::numeric_limits<double>::infinity();

bool is_skipped() {
  if (has_ilp_solver()) return false;
  WARN("skipped: this machine has no cbc (package coinor-cbc)");
  return true;
}

/// Checks that the plans of both solvers cost the same and keep the budget.
void compare(const Problem& problem, double budget) {
  const Solution ours = solve(problem, {.memory_budget = budget});
  const auto theirs = solve_integer_program(problem, budget);
  REQUIRE(ours.is_feasible == theirs.has_value());
  if (!theirs) return;
  CHECK(ours.is_exact());
  CHECK(ours.objective == Approx(objective(problem, *theirs)).epsilon(1e-9));
  CHECK(memory(problem, ours.choices) <= budget);
  CHECK(memory(problem, *theirs) <= budget * (1 + 1e-9));
}

}  // namespace

TEST_CASE("plan ilp: golden problems and ours of their graphs have the optimum of the integer program", "[plan]") {
  if (is_skipped()) return;
  for (const char* name :
       {"gpt_mlp_384", "gpt_attn_384", "gpt_block_384", "resnet18_b128_32px_2x2", "resnet50_b128_32px_2x2"}) {
    INFO(name);
    const PlanFile file = read_plan_file(plan_file(name));
    compare(*file.problem, kNone);
    compare(compat_problem(*file.graph), kNone);
  }
}

TEST_CASE("plan ilp: golden problems with a budget have the optimum of the integer program", "[plan]") {
  if (is_skipped()) return;
  for (const char* name : {"gpt_mlp_384", "gpt_attn_384", "resnet18_b128_32px_2x2"}) {
    const Problem problem = *read_plan_file(plan_file(name)).problem;
    const Solution free = solve(problem);
    const double least = solve(problem, {.memory_budget = 0}).smallest_budget;
    for (const double share : {0.8, 0.4, 0.1}) {
      INFO(name << ", share " << share);
      compare(problem, std::floor(least + share * (free.memory - least)));
    }
    CHECK_FALSE(solve_integer_program(problem, least - 1));
  }
}

namespace {

/// The problem in microseconds: the other solver's tolerances suit numbers around 1.
Problem in_microseconds(Problem problem) {
  for (std::vector<double>& costs : problem.costs)
    for (double& cost : costs) cost *= 1e6;
  for (Edge& edge : problem.edges)
    for (double& cost : edge.cost) cost *= 1e6;
  return problem;
}

}  // namespace

TEST_CASE("plan ilp: layers in seconds have the optimum of the integer program, with and without a budget", "[plan]") {
  if (is_skipped()) return;
  for (const int devices : {4, 8}) {
    const Mesh mesh{1, {devices}, {5e-6}, {1 / 200e9}};
    for (const bool has_budget : {false, true})
      for (const Graph& graph : {residual_mlp(mesh, 8, 512, 512), decoder(mesh, {})}) {
        CalibratedCosts costs;
        costs.cuts_parameters = has_budget;
        const Planned planned = make_plan(graph, costs);
        INFO(graph.nodes.size() << " nodes on " << devices << " devices, with" << (has_budget ? "" : "out")
                                << " a budget");
        const Problem problem = in_microseconds(planned.problem);
        const double free = planned.solution.memory;
        const double least = solve(planned.problem, {.memory_budget = 0}).smallest_budget;
        if (!has_budget) compare(problem, kNone);
        else
          for (const double share : {0.5, 0.0}) compare(problem, std::floor(least + share * (free - least)));
      }
  }
}

TEST_CASE("plan ilp: random problems, with and without a budget, have the optimum of the integer program", "[plan]") {
  if (is_skipped()) return;
  std::mt19937 random(3);
  int infeasible = 0;
  for (int trial = 0; trial < 40; ++trial) {
    INFO("trial " << trial);
    Problem problem = random_problem(random, 10, 24);
    if (trial % 2) add_live(random, problem);
    compare(problem, kNone);
    const double least = solve(problem, {.memory_budget = 0}).smallest_budget, budget = least - 4 + random() % 60;
    infeasible += budget < least;
    compare(problem, budget);
  }
  CHECK(infeasible > 0);
}

TEST_CASE("plan ilp: a small problem is the program that it should be", "[plan]") {
  const Problem problem{
      {{1, 2}, {3}, {4, 5}}, {{6, 7}, {8}, {9, 10}}, {-1, -1, 0}, {{0, 1, {11, 12}}, {0, 2, {13, 14, 15, 16}}}};
  // Node 2 follows node 0: their costs, their bytes and the diagonal of their edge belong to one variable.
  CHECK(integer_program(problem, 30) == R"(Minimize
 obj: + 18 x0_0
 + 23 x0_1
 + 3 x1_0
 + 11 e0_0_0
 + 12 e0_1_0

Subject To
 + 1 x0_0
 + 1 x0_1
 = 1
 + 1 x1_0
 = 1
 + 1 e0_0_0
 - 1 x0_0
 = 0
 + 1 e0_1_0
 - 1 x0_1
 = 0
 + 1 e0_0_0
 + 1 e0_1_0
 - 1 x1_0
 = 0
 + 15 x0_0
 + 17 x0_1
 + 8 x1_0
 <= 30
Binaries
 x0_0
 x0_1
 x1_0
End
)");
}

}  // namespace seqtile::testing
