// tests/planner/stored_plan_test.cpp -- plans as texts: a plan that was read gives the same answers.
// SPDX-License-Identifier: Apache-2.0
#include "planner/solver/stored_plan.h"

#include <catch2/catch.hpp>

#include "planner/compat/compat_problem.h"
#include "planner/compat/compat_strategies.h"
#include "planner/graph/graph_json.h"
#include "planner/solver/plan_costs.h"
#include "seqtile/error.h"
#include "tests/planner/plan_files.h"
#include "tests/planner/planned.h"
#include "tests/planner/sample_graphs.h"

namespace seqtile::testing {
namespace {

const planner::Mesh kMesh{2, {2, 4}, {1e-6, 2e-6}, {1e-10, 1e-11}};

planner::Planned calibrated(const planner::Graph& graph, bool saves_memory = false) {
  planner::CalibratedCosts costs;
  costs.cuts_parameters = saves_memory;
  Planned made = make_plan(graph, costs);
  if (saves_memory) {
    const double least = planner::solve(made.problem, {.memory_budget = 0}).smallest_budget;
    made.solution = planner::solve(made.problem, {.memory_budget = 1.1 * least});
  }
  return {std::move(made.graph),
          std::move(made.problem),
          {{{"what", "x", 1}, {"not \"this\"", "y", 2}}},
          std::move(made.solution)};
}

planner::Planned compat(planner::Graph graph) {
  planner::Planned plan{std::move(graph), {}, {}, {}};
  planner::generate_compat_strategies(plan.graph);
  plan.problem = planner::compat_problem(plan.graph);
  plan.solution = planner::solve(plan.problem);
  return plan;
}

const planner::Strategy& chosen(const planner::Planned& plan, size_t node) {
  return plan.graph.nodes[node].strategies[static_cast<size_t>(plan.solution.choices[node])];
}

void check_same_strategy(const planner::Strategy& a, const planner::Strategy& b) {
  CHECK(a.name == b.name);
  CHECK(a.operands == b.operands);
  CHECK(a.results == b.results);
  CHECK(a.parameters == b.parameters);
  CHECK(a.memory == b.memory);
  CHECK(a.kernels == b.kernels);
  CHECK(a.measured == b.measured);
}

/// Compares all that the forms of a plan are made of, to the last bit.
void check_same(const planner::Planned& a, const planner::Planned& b) {
  const auto costs = planner::operator_costs(a.graph, a.problem, a.solution.choices),
             other_costs = planner::operator_costs(b.graph, b.problem, b.solution.choices);
  REQUIRE(costs.size() == other_costs.size());
  for (size_t i = 0; i < costs.size(); ++i) {
    INFO(a.graph.nodes[i].name);
    check_same_strategy(chosen(a, i), chosen(b, i));
    CHECK(a.graph.nodes[i].merges == b.graph.nodes[i].merges);
    CHECK(costs[i].compute == other_costs[i].compute);
    CHECK(costs[i].communication == other_costs[i].communication);
    CHECK(costs[i].reshard == other_costs[i].reshard);
    CHECK(costs[i].memory == other_costs[i].memory);
  }
  const auto sent = planner::transfers(a.graph, a.problem, a.solution.choices),
             other_sent = planner::transfers(b.graph, b.problem, b.solution.choices);
  REQUIRE(sent.size() == other_sent.size());
  for (size_t i = 0; i < sent.size(); ++i) CHECK(sent[i].cost == other_sent[i].cost);
  CHECK(planner::memory_timeline(a.graph, a.problem, a.solution.choices).bytes ==
        planner::memory_timeline(b.graph, b.problem, b.solution.choices).bytes);
  CHECK(a.unknown == b.unknown);
  CHECK(a.solution.memory == b.solution.memory);
  CHECK(a.solution.width == b.solution.width);
}

}  // namespace

TEST_CASE("stored plan: what was written is read, to the last bit", "[plan]") {
  const planner::Graph layers = decoder(kMesh, {}), block = residual_mlp(kMesh, 8, 128, 256);
  for (const auto& [graph, made] :
       {std::pair{layers, calibrated(layers)}, {layers, calibrated(layers, true)}, {block, compat(block)}}) {
    REQUIRE(made.solution.is_feasible);
    const std::string text = planner::plan_text(made);
    CHECK(text.find('\n') == std::string::npos);
    check_same(made, planner::parse_plan(text, graph));
  }
}

TEST_CASE("stored plan: strategies of a file, tuples and merged operators come back", "[plan]") {
  for (const std::string name : kPlanFiles) {
    INFO(name);
    const planner::Graph graph = *planner::read_plan_file(plan_file(name)).graph;
    planner::Planned made{graph, planner::compat_problem(graph), {}, {}};
    made.solution = planner::solve(made.problem);
    check_same(made, planner::parse_plan(planner::plan_text(made), graph));
  }
}

TEST_CASE("stored plan: the hash is that of all that decides a plan", "[plan]") {
  const planner::Graph graph = *planner::read_plan_file(plan_file("gpt_mlp_384")).graph;
  const std::string hash = planner::graph_hash(graph);
  CHECK(hash == planner::graph_hash(planner::Graph(graph)));
  const auto differs = [&](const auto& change) {
    planner::Graph other = graph;
    change(other);
    return planner::graph_hash(other) != hash;
  };
  CHECK(differs([](planner::Graph& g) { g.mesh.shape[0] *= 2; }));
  CHECK(differs([](planner::Graph& g) { g.mesh.beta[1] *= 2; }));
  CHECK(differs([](planner::Graph& g) { g.is_training = !g.is_training; }));
  CHECK(differs([](planner::Graph& g) { g.nodes[0].results[0].shape[0] *= 2; }));
  CHECK(differs([](planner::Graph& g) { g.nodes[0].merges = !g.nodes[0].merges; }));
  CHECK(differs([](planner::Graph& g) { g.nodes[0].strategies[0].compute += 1; }));
  CHECK(differs([](planner::Graph& g) { g.nodes[0].strategies[0].results[0] = planner::Layout().with_partial(1); }));
  CHECK(differs([](planner::Graph& g) { g.nodes.back().arguments.push_back("1"); }));
}

TEST_CASE("stored plan: texts that are cut, or of another graph, are refused", "[plan]") {
  const planner::Graph graph = residual_mlp(kMesh, 8, 128, 256);
  const std::string text = planner::plan_text(calibrated(graph));
  for (size_t end = 0; end < text.size(); end += 97)
    CHECK_THROWS_AS(planner::parse_plan(text.substr(0, end), graph), Error);
  CHECK_THROWS_WITH(planner::parse_plan(text, decoder(kMesh, {})), Catch::Contains("another graph's"));
  planner::Graph renamed = graph;
  renamed.nodes[1].name = "other";
  CHECK_THROWS_WITH(planner::parse_plan(text, renamed), Catch::Contains("another graph's operator"));
}

TEST_CASE("stored plan: a planner that finds other plans has another version", "[plan]") {
  // A change of these numbers needs a new kPlannerVersion, so that plans in files are made again.
  CHECK(planner::kPlannerVersion == 3);
  const planner::Planned layers = calibrated(decoder(kMesh, {})), block = compat(residual_mlp(kMesh, 8, 128, 256));
  CHECK(layers.solution.objective == Approx(0.0585474074).epsilon(1e-8));
  CHECK(block.solution.objective == Approx(201705265.8805459142).epsilon(1e-8));
}

}  // namespace seqtile::testing
