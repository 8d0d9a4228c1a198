// tests/planner/strategies_test.cpp -- generated strategies against the known planner's, and by hand.
// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>
#include <cmath>

#include "planner/compat/compat_problem.h"
#include "planner/compat/compat_strategies.h"
#include "planner/graph/graph_json.h"
#include "planner/solver/alternatives.h"
#include "planner/solver/solver.h"
#include "tests/planner/plan_files.h"

#include <fmt/format.h>

namespace seqtile::testing {

using namespace planner;

namespace {

bool is_near(double a, double b) { return std::abs(a - b) <= 1e-12 * std::abs(b); }

/// The first difference between two nodes' strategies; empty without one.
std::string difference(const Node& ours, const Node& stored) {
  if (ours.strategies.size() != stored.strategies.size())
    return fmt::format("{} strategies, not {}", ours.strategies.size(), stored.strategies.size());
  for (size_t i = 0; i < ours.strategies.size(); ++i) {
    const Strategy &a = ours.strategies[i], &b = stored.strategies[i];
    if (a.name != b.name) return fmt::format("'{}' is not '{}'", a.name, b.name);
    if (a.operands != b.operands || a.results != b.results) return b.name + ": layouts";
    if (!is_near(a.compute, b.compute)) return fmt::format("{}: compute {} is not {}", b.name, a.compute, b.compute);
    if (!is_near(a.communication, b.communication))
      return fmt::format("{}: communication {} is not {}", b.name, a.communication, b.communication);
    if (!is_near(a.memory, b.memory)) return fmt::format("{}: memory {} is not {}", b.name, a.memory, b.memory);
  }
  return "";
}

}  // namespace

TEST_CASE("plan: generated strategies are those of the known planner", "[plan]") {
  for (const std::string name : kPlanFiles) {
    INFO(name);
    const PlanFile file = read_plan_file(plan_file(name));
    Graph own = *file.graph;
    CHECK(generate_compat_strategies(own).empty());
    for (size_t node = 0; node < own.nodes.size(); ++node) {
      INFO(own.nodes[node].name);
      CHECK(difference(own.nodes[node], file.graph->nodes[node]) == "");
    }
    const double objective = solve(compat_problem(own)).objective;
    CHECK(std::abs(objective - *file.objective) <= 1e-9 * *file.objective);
  }
}

TEST_CASE("plan: an exported ResNet-152 has the known planner's optimum", "[plan]") {
  Graph graph = *read_plan_file(SEQTILE_SOURCE_DIR "/bench/plan/resnet152_2x2.json.gz").graph;
  CHECK(graph.nodes.size() == 520);
  CHECK(generate_compat_strategies(graph).empty());
  const Solution solution = solve(compat_problem(graph));
  CHECK(solution.is_exact());
  CHECK(std::abs(solution.objective - 22886070616.28) < 0.01);
}

TEST_CASE("plan: a model of 24 layers is exact on two and on three axes", "[plan]") {
  const Graph exported = *read_plan_file(SEQTILE_SOURCE_DIR "/bench/plan/gpt2_24_layers_2x2.json.gz").graph;
  for (const Mesh& mesh : {exported.mesh, Mesh{3, {2, 2, 2}, {1, 1, 1}, {1, 1, 1}}}) {
    Graph graph = exported;
    graph.mesh = mesh;
    CHECK(generate_compat_strategies(graph).empty());
    CHECK(solve(compat_problem(graph)).is_exact());
  }
}

TEST_CASE("plan: alternatives of a node: the best one's plan is the optimum, and each is what that choice leaves",
          "[plan]") {
  const PlanFile file = read_plan_file(plan_file("gpt_mlp_384"));
  const Problem problem = compat_problem(*file.graph);
  const Solution best = solve(problem);
  for (int node = 0; node < problem.num_nodes(); ++node) {
    INFO(file.graph->nodes[static_cast<size_t>(node)].name);
    const std::vector<Alternative> alternatives = alternatives_of(problem, node);
    const auto chosen = static_cast<size_t>(best.choices[static_cast<size_t>(node)]);
    CHECK(is_near(alternatives[chosen].objective, best.objective));
    for (const Alternative& other : alternatives) CHECK(other.objective >= best.objective * (1 - 1e-12));
    Problem forced = problem;  // a large discount forces the choice of a strategy
    for (size_t i = 0; i < alternatives.size(); ++i) {
      const auto leader = static_cast<size_t>(leader_of(problem, node));
      forced.costs = problem.costs;
      forced.costs[leader][i] -= 1e12;
      CHECK(std::abs(solve(forced).objective + 1e12 - alternatives[i].objective) < 1e-2);
    }
  }
}

namespace {

/// x -> the operator -> output, over a mesh of `shape`.
Graph around(const std::string& node, const std::string& input_shape, const std::string& mesh) {
  const std::string ones = mesh == "2" ? "1" : mesh == "2, 2" ? "1, 1" : "1, 1, 1";
  return *parse_plan_file(fmt::format(R"({{"meta": {{"mesh": [{}], "alpha": [{}], "beta": [{}]}}, "nodes": [
                {{"name": "x", "op": "placeholder", "inputs": [], "out": {{"shape": {}, "dtype": "torch.float32"}}}},
                {}, {{"name": "out", "op": "output", "inputs": ["y"], "out": null}}]}})",
                                      mesh, ones, ones, input_shape, node),
                          "test")
              .graph;
}

constexpr const char* kConv =
    R"({"name": "y", "op": "call_module", "target": "c", "module": "Conv2d", "inputs": ["x"], "args": ["x"],
        "params": {"weight": [8, 8, 3, 3]}, "out": {"shape": [16, 8, 4, 4], "dtype": "torch.float32"}})";

}  // namespace

TEST_CASE("plan: strategies of other meshes: every axis cuts rows, columns, the sum or nothing", "[plan]") {
  for (const auto& [mesh, count] : {std::pair<std::string, size_t>{"2", 4}, {"2, 2", 16}, {"2, 2, 2", 64}}) {
    INFO(mesh);
    Graph graph = around(kConv, "[16, 8, 4, 4]", mesh);
    CHECK(generate_compat_strategies(graph).empty());
    CHECK(graph.nodes[1].strategies.size() == count);
    CHECK(solve(compat_problem(graph)).is_feasible);
  }
  Graph graph = around(kConv, "[16, 8, 4, 4]", "2, 2, 3");  // nothing here is divisible by three
  generate_compat_strategies(graph);
  CHECK(graph.nodes[1].strategies.size() == 16);
}

TEST_CASE("plan: an operator that is not known, or not of this form, is kept whole and named", "[plan]") {
  const auto node = [](const std::string& what) {
    return R"({"name": "y", "op": "call_module", "target": "other", "inputs": ["x"], "args": ["x"], )" + what + "}";
  };
  const std::string out = R"("out": {"shape": [16, 8, 4, 4], "dtype": "torch.float32"})";
  for (const auto& [what, name] : std::vector<std::pair<std::string, std::string>>{
           {out, "FlashMixer"},
           {out, "Conv2d"},
           {R"("params": {"weight": [8, 3, 3, 3]}, )" + out, "Conv2d"},
           {R"("params": {"weight": [8, 5]}, )" + out, "Linear"},
           {R"("params": {"weight": [16, 8, 4, 4]}, )" + out, "LayerNorm"},
           {R"("out": {"shape": [16, 8], "dtype": "torch.float32"})", "ReLU"},
           {R"("out": {"shape": [16, 4, 4, 4], "dtype": "torch.float32"})", "MaxPool2d"}}) {
    INFO(name << " " << what);
    Graph graph = around(node(what), "[16, 8, 4, 4]", "2, 2");
    graph.nodes[1].module = name;  // a file with some of these shapes would be refused
    CHECK(generate_compat_strategies(graph).text() == name + " (node y)");
    REQUIRE(graph.nodes[1].strategies.size() == 1);
    CHECK(graph.nodes[1].strategies[0].results[0] == Layout());
    CHECK(solve(compat_problem(graph)).is_exact());
  }
  for (const char* method : {"view", "permute", "transpose", "split", "getitem", "matmul", "where"}) {
    INFO(method);
    Graph graph = around(R"({"name": "y", "op": "call_method", "target": "other", "inputs": ["x"],
        "args": ["x", "7", "-9"], "out": {"shape": [3, 5, 1, 2, 2], "dtype": "torch.float32"}})",
                         "[16, 8, 4, 4]", "2, 2");
    graph.nodes[1].target = method;
    CHECK_NOTHROW(generate_compat_strategies(graph));
    CHECK(!graph.nodes[1].strategies.empty());
  }
}

TEST_CASE("plan: a view that cannot follow each cut of its input chooses its own", "[plan]") {
  // Six columns become three by two: cut in two they would leave one and a half of three.
  Graph graph = around(R"({"name": "y", "op": "call_method", "target": "view", "inputs": ["x"], "args": ["x"],
      "merge": true, "out": {"shape": [8, 3, 2], "dtype": "torch.float32"}})",
                       "[8, 6]", "2, 2");
  graph.nodes[0].op = "get_attr";
  CHECK(generate_compat_strategies(graph).empty());
  CHECK(graph.nodes[1].strategies.size() < graph.nodes[0].strategies.size());
  CHECK_FALSE(graph.nodes[1].merges);
  CHECK(solve(compat_problem(graph)).is_exact());
}

}  // namespace seqtile::testing
