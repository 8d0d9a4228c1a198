// tests/planner/plan_costs_test.cpp -- costs and memory of a plan, operator by operator.
// SPDX-License-Identifier: Apache-2.0
#include "planner/solver/plan_costs.h"

#include <catch2/catch.hpp>

#include <set>

#include "planner/compat/compat_problem.h"
#include "planner/graph/graph_json.h"
#include "planner/graph/local_shape.h"
#include "planner/solver/solver.h"
#include "tests/planner/graph_maker.h"
#include "tests/planner/plan_files.h"
#include "tests/planner/planned.h"

namespace seqtile::testing {
namespace {

using namespace planner;

Strategy strategy(std::vector<std::vector<Layout>> operands, Layout result) {
  return {"s", std::move(operands), {result}, 0, 0, 0};
}

/// x[8, 4] -> fc, weight [16, 4] -> y[8, 16] -> view [128] -> relu [128], f32, on 2 devices.
Graph linear_graph(Layout weight_cut_result) {
  Graph graph;
  graph.mesh = {1, {2}, {1}, {1}};
  const auto add = [&](const char* name, std::vector<int> inputs, std::vector<int64_t> shape, Layout result) {
    Node& node = graph.nodes.emplace_back();
    node.name = node.target = name;
    node.op = inputs.empty() ? "placeholder" : "call_function";
    node.results = {{std::move(shape), "f32", 4}};
    node.strategies = {strategy(std::vector(inputs.size(), std::vector{Layout()}), result)};
    node.inputs = std::move(inputs);
  };
  add("x", {}, {8, 4}, {});
  add("fc", {0}, {8, 16}, weight_cut_result);
  graph.nodes.back().module = "Linear";
  graph.nodes.back().parameters = {{"weight", {16, 4}}, {"bias", {16}}};
  add("view", {1}, {128}, {});
  add("relu", {2}, {128}, {});
  return graph;
}

}  // namespace

TEST_CASE("plan costs: those of all operators are the objective, those of transfers its changes of layout", "[plan]") {
  for (const std::string name : kPlanFiles) {
    INFO(name);
    const Graph graph = *read_plan_file(plan_file(name)).graph;
    const Problem problem = compat_problem(graph);
    const Solution solution = solve(problem);
    double sum = 0, edges = 0, sent = 0;
    for (const OperatorCost& cost : operator_costs(graph, problem, solution.choices)) {
      CHECK(cost.reshard >= 0);
      sum += cost.total();
    }
    CHECK(sum == Approx(solution.objective).epsilon(1e-12));
    Problem without = problem;
    for (Edge& edge : without.edges) std::ranges::fill(edge.cost, 0);
    edges = solution.objective - objective(without, solution.choices);
    std::set<std::pair<int, int>> pairs;
    for (const Transfer& transfer : transfers(graph, problem, solution.choices)) {
      CHECK(pairs.emplace(transfer.producer, transfer.consumer).second);
      sent += transfer.cost;
    }
    CHECK(sent == Approx(edges).epsilon(1e-9).margin(1e-6 * solution.objective));
  }
}

TEST_CASE("plan costs: parameters are cut as the results and operands that share their dimensions", "[plan]") {
  Node node;
  node.results = {{{8, 4, 6, 6}, "f32", 4}};
  const auto cut_of = [&](const char* module, std::vector<int64_t> weight, const char* name, Layout operand,
                          Layout result) {
    node.module = module;
    node.parameters = {{name, std::move(weight)}};
    return parameter_layout(node, strategy({{operand}}, result), name);
  };
  const Layout first = Layout().with(0, 1), second = Layout().with(1, 2), last = Layout().with(3, 2);
  CHECK(cut_of("Linear", {6, 6}, "weight", first.with(3, 4), last) == Layout().with(0, 2).with(1, 4));
  CHECK(cut_of("Linear", {6}, "bias", first.with(3, 4), last) == Layout().with(0, 2));
  CHECK(cut_of("Conv2d", {4, 4, 3, 3}, "weight", second, first.with(1, 4)) == Layout().with(0, 4).with(1, 2));
  CHECK(cut_of("BatchNorm2d", {4}, "weight", second, second) == Layout().with(0, 2));
  CHECK(cut_of("LayerNorm", {6}, "weight", first, first) == Layout());
  CHECK(cut_of("Embedding", {9, 6}, "weight", {}, last) == Layout().with(1, 2));
  CHECK(cut_of("Embedding", {9, 6}, "weight", {}, Layout().with_partial(1)) == Layout().with(0, 1));
  CHECK(parameter_layout(node, strategy({{{}}}, {}), "none") == Layout());
}

TEST_CASE("plan costs: what a strategy counts for parameters is what their layouts hold, in parts too", "[plan]") {
  GraphMaker maker({2, {2, 4}, {1e-6, 1e-6}, {1e-9, 1e-9}}, "f32", 4);
  int x = maker.placeholder("x", {16, 64});
  x = maker.norm("norm", maker.linear("fc", x, 128));
  Graph graph = maker.output(maker.module("embedding", "Embedding", x, {16, 128, 24}, {40, 24}));
  graph.nodes[1].parameters["bias"] = {128};
  CalibratedCosts costs;
  costs.cuts_parameters = true;
  const Planned planned = make_plan(graph, costs);
  int in_parts = 0;
  for (const Node& node : planned.graph.nodes)
    for (const Strategy& strategy : node.strategies) {
      INFO(node.name << ": " << strategy.name);
      double parameters = 0, results = 0;
      for (const auto& [name, shape] : node.parameters) {
        const Layout layout = parameter_layout(node, strategy, name);
        CHECK(layout.partial() == 0);
        parameters += local_bytes(graph.mesh, shape, layout, 4);
      }
      for (size_t member = 0; member < node.results.size(); ++member)
        results += local_bytes(graph.mesh, node.results[member].shape, strategy.results[member], 4);
      CHECK(strategy.memory == parameters * (4 + 8) / 4);  // with two moments
      CHECK(strategy.gradient == parameters);
      CHECK(strategy.activation == results);
      in_parts += strategy.name.find("in parts") != std::string::npos;
    }
  CHECK(in_parts > 10);
}

TEST_CASE("plan costs: memory over time is that of a hand-worked graph", "[plan]") {
  Graph graph = linear_graph({});
  const Choices choices(4);
  // x 128 B, y 512 B, its view none, relu 512 B; the weight 256 B, the bias 64 B.
  graph.is_training = false;
  MemoryTimeline timeline = memory_timeline(graph, {}, choices);
  CHECK(timeline.parameters == 320);
  CHECK(timeline.bytes == std::vector<double>{448, 960, 832, 1344});  // y is alive until relu has read its view
  CHECK(timeline.peak() == 1344);
  graph.is_training = true;
  timeline = memory_timeline(graph, {}, choices);
  // All results are kept. relu's backward pass makes y's gradient, then relu's result goes. fc's backward pass makes
  // the parameters' gradients, then y and its gradient go. Data have no gradient.
  CHECK(timeline.bytes == std::vector<double>{448, 960, 960, 1472, 1984, 1472, 1792, 768});
  graph = linear_graph(Layout().with(1, 1));  // columns cut in two: half of y, of the weight and of the bias
  graph.is_training = false;
  CHECK(memory_timeline(graph, {}, choices).bytes == std::vector<double>{288, 544, 416, 928});
}

TEST_CASE("plan costs: members of a tuple, transposes and reshapes are held as what they view", "[plan]") {
  GraphMaker maker({1, {2}, {1e-6}, {1e-9}}, "f32", 4);
  int x = maker.function("relu", "relu", {maker.placeholder("x", {8, 32})}, {8, 32});
  const int split = maker.function("parts", "torch.split", {x}, {8, 16});
  const int part = maker.function("part", "operator.getitem", {split}, {8, 16});
  x = maker.function("reshaped", "reshape", {maker.function("turned", "transpose", {part}, {16, 8})}, {128});
  Graph graph = maker.output(maker.function("last", "relu", {x}, {128}));
  Node& parts = graph.nodes[static_cast<size_t>(split)];
  parts.results.push_back(parts.results.front());
  parts.is_tuple = true;
  graph.nodes[static_cast<size_t>(part)].arguments = {"parts", "1"};
  graph.nodes[4].arguments = {"part", "0", "1"};
  graph.is_training = false;
  const Planned planned = make_plan(graph, {});
  CHECK(planned.strategies.unknown.empty());
  Choices whole;
  for (const Node& node : planned.graph.nodes) {
    const auto found = std::ranges::find(node.strategies, "whole", &Strategy::name);
    REQUIRE(found != node.strategies.end());
    whole.push_back(static_cast<int>(found - node.strategies.begin()));
  }
  // x goes when relu has read it. relu's result is there until the last operator has read a part of it.
  const std::vector<double> bytes{1024, 2048, 1024, 1024, 1024, 1024, 1536, 512};
  CHECK(memory_timeline(planned.graph, planned.problem, whole).bytes == bytes);
  CHECK(memory_timeline(planned.graph, {}, whole).bytes == bytes);  // the same, by layouts
  for (const size_t view : {2, 3, 4, 5})
    for (const Strategy& strategy : planned.graph.nodes[view].strategies) CHECK(strategy.held() == 0);
}

TEST_CASE("plan costs: a buffer of integers is held all the time", "[plan]") {
  GraphMaker maker({1, {2}, {1e-6}, {1e-9}}, "f32", 4);
  maker.placeholder("x", {8, 32});
  Graph graph = maker.output(maker.function("last", "relu", {0}, {8, 32}));
  Node buffer;
  buffer.name = "mask", buffer.op = "get_attr", buffer.target = "mask";
  buffer.results = {{{64, 1024}, "i64", 8}};
  graph.nodes.insert(graph.nodes.begin(), buffer);
  for (Node& node : graph.nodes)
    for (int& input : node.inputs) ++input;
  for (const bool trains : {true, false}) {
    graph.is_training = trains;
    const Planned planned = make_plan(graph, {});
    CHECK(planned.solution.memory >= 64 * 1024 * 8 / 2);
    for (const double bytes : memory_timeline(planned.graph, planned.problem, planned.solution.choices).bytes)
      CHECK(bytes >= 64 * 1024 * 8 / 2);
  }
}

TEST_CASE("plan costs: along an axis of one device there is no choice", "[plan]") {
  const auto names = [](const Mesh& mesh) {
    GraphMaker maker(mesh, "f32", 4);
    const Planned planned = make_plan(maker.output(maker.linear("fc", maker.placeholder("x", {16, 64}), 128)), {});
    std::vector<std::string> result;
    for (const Strategy& strategy : planned.graph.nodes[1].strategies) result.push_back(strategy.name);
    return result;
  };
  const std::vector<std::string> four = names({1, {4}, {1e-6}, {1e-9}});
  CHECK(four.size() > 4);
  CHECK(names({2, {4, 1}, {1e-6, 1e-6}, {1e-9, 1e-9}}) == four);
  CHECK(names({1, {1}, {1e-6}, {1e-9}}) == std::vector<std::string>{"whole"});
}

}  // namespace seqtile::testing
