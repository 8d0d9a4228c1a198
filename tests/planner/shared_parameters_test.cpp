// tests/planner/shared_parameters_test.cpp -- a parameter that several operators read: one place, one memory, one
// gradient.
// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>

#include <tuple>

#include "planner/graph/graph_json.h"
#include "planner/graph/shared_parameters.h"
#include "planner/strategies/gradient_traffic.h"
#include "tests/planner/graph_maker.h"
#include "tests/planner/planned.h"

namespace seqtile::testing {

using namespace planner;
using planner::Graph;  // not a graph of launches

namespace {

const Mesh kMesh{1, {4}, {1e-6}, {1e-9}};
constexpr int64_t kRows = 512, kWidth = 256;

/// A layer of kWidth x kWidth that is called `calls` times.
Graph called(int calls, const std::string& second_target = "layer") {
  GraphMaker maker(kMesh, "f32", 4);
  int x = maker.placeholder("x", {kRows, kWidth});
  for (int call = 0; call < calls; ++call) x = maker.linear("layer" + std::to_string(call), x, kWidth);
  Graph graph = maker.output(x);
  for (Node& node : graph.nodes)
    if (node.op == "call_module") node.target = node.name == "layer0" ? "layer" : second_target;
  return graph;
}

/// ids -> rows of `words` -> logits by a weight of the same form: the same tensor, or another one.
Graph embedding_and_head(bool is_tied) {
  GraphMaker maker(kMesh, "f32", 4);
  const int ids = maker.placeholder("ids", {8, 64}), words = maker.placeholder("words", {4096, kWidth}),
            other = is_tied ? words : maker.placeholder("head", {4096, kWidth});
  const int rows = maker.function("rows", "aten.embedding", {words, ids}, {8, 64, kWidth});
  Graph graph = maker.output(maker.function("logits", "aten.linear", {rows, other}, {8, 64, 4096}));
  graph.nodes[static_cast<size_t>(ids)].results[0] = {{8, 64}, "i64", 8};
  for (const int held : {words, other}) graph.nodes[static_cast<size_t>(held)].op = "get_attr";
  return graph;
}

std::string json_of(const std::string& role, const std::string& version = "2") {
  return R"({"meta": {"version": )" + version + R"(, "mesh": [2], "alpha": [1], "beta": [1]}, "nodes": [
      {"name": "w", "op": "get_attr", "target": "w", "role": )" +
         role +
         R"(, "inputs": [], "out": {"shape": [8, 8], "dtype": "torch.float32"}},
      {"name": "out", "op": "output", "inputs": ["w"], "out": null}]})";
}

double held(const Graph& graph, const std::string& name, double Strategy::*part) {
  const auto node = std::ranges::find(graph.nodes, name, &Node::name);
  REQUIRE(node != graph.nodes.end());
  const auto way = std::ranges::find(node->strategies, "whole", &Strategy::name);
  REQUIRE(way != node->strategies.end());
  return (*way).*part;
}

}  // namespace

TEST_CASE("shared parameters: a module that is called twice has its parameters in nodes that both calls read",
          "[plan]") {
  Graph graph = called(3);
  graph.nodes[1].parameters["bias"] = graph.nodes[2].parameters["bias"] = graph.nodes[3].parameters["bias"] = {kWidth};
  CHECK(count_parameters(graph) == 3 * (kWidth * kWidth + kWidth));
  share_parameters(graph);
  CHECK(count_parameters(graph) == kWidth * kWidth + kWidth);
  REQUIRE(graph.nodes.size() == 7);
  CHECK(graph.nodes[1].name == "layer_weight");
  CHECK(graph.nodes[1].target == "layer.weight");
  CHECK(graph.nodes[2].name == "layer_bias");
  CHECK(graph.nodes[3].inputs == std::vector{0, 1, 2});
  CHECK(graph.nodes[4].inputs == std::vector{3, 1, 2});
  CHECK(graph.nodes[6].inputs == std::vector{5});
  CHECK(make_plan(graph, {}).strategies.unknown.empty());
  Graph apart = called(2, "other");
  share_parameters(apart);
  CHECK(apart.nodes.size() == 4);
  Graph odd = called(2);
  odd.nodes[2].parameters["weight"] = {1, kWidth};
  CHECK_THROWS_WITH(share_parameters(odd), Catch::Contains("call module layer with different \"params\""));
}

TEST_CASE("shared parameters: tied weights are counted once in memory, state, gradients and traffic", "[plan]") {
  constexpr double kWeight = 4096.0 * kWidth;
  const Planned tied = make_plan(embedding_and_head(true), {}), apart = make_plan(embedding_and_head(false), {});
  CHECK(tied.strategies.unknown.empty());
  CHECK(count_parameters(tied.graph) == kWeight);
  CHECK(count_parameters(apart.graph) == 2 * kWeight);
  CHECK(held(tied.graph, "words", &Strategy::memory) == kWeight * (4 + 8));
  CHECK(held(tied.graph, "words", &Strategy::gradient) == kWeight * 4);
  // The difference on one device after the backward pass is the second weight with its state and gradient.
  const auto at_the_end = [](Graph graph) {
    graph.mesh = Mesh{1, {1}, {0}, {0}};
    const Planned planned = make_plan(graph, {});
    return memory_by_step(planned.problem, planned.solution.choices).back();
  };
  CHECK(at_the_end(embedding_and_head(false)) - at_the_end(embedding_and_head(true)) == Approx(kWeight * (4 + 8 + 4)));
  const auto gradients = gradients_of(embedding_and_head(true), {});
  REQUIRE(gradients.size() == 1);
  CHECK(gradients[0].bytes() == kWeight * 4);
  CHECK(gradients_of(embedding_and_head(false), {}).size() == 2);
}

TEST_CASE("shared parameters: a gradient's sum over devices is paid once, however many operators read the weight",
          "[plan]") {
  // Each of the devices that share the batch has a part of the whole sum. The sum costs one all-reduce.
  const Keep by_batch = [](const Node& node, const Strategy& way) {
    return node.op == "get_attr" ? way.name == "whole" : way.name == "S0 dim 0";
  };
  const auto sums = [&](bool is_tied) {
    const Planned planned = make_plan(embedding_and_head(is_tied), {}, by_batch);
    double seconds = 0;
    for (const Edge& edge : planned.problem.edges)
      if (planned.graph.nodes[static_cast<size_t>(edge.producer)].op == "get_attr") seconds += edge.cost[0];
    return seconds;
  };
  const double one = all_reduce(kMesh, 0, 4096.0 * kWidth * 4);
  CHECK(sums(true) == Approx(one));
  CHECK(sums(false) == Approx(2 * one));
}

TEST_CASE("shared parameters: roles say what has a gradient and a state", "[plan]") {
  for (const auto& [role, is_trained, count] :
       {std::tuple<std::string, bool, double>{"parameter", true, 64}, {"frozen", false, 64}, {"buffer", false, 0}}) {
    INFO(role);
    Graph graph = *parse_plan_file(json_of('"' + role + '"'), "test").graph;
    CHECK(parse_plan_file(graph_json(graph), "again").graph->nodes[0].role == graph.nodes[0].role);
    CHECK(count_parameters(graph) == count);
    const Planned planned = make_plan(graph, {});
    CHECK(held(planned.graph, "w", &Strategy::memory) == (is_trained ? 64 * (4 + 8) : 64 * 4));
    CHECK(held(planned.graph, "w", &Strategy::gradient) == (is_trained ? 64 * 4 : 0));
    if (is_trained) CHECK(gradients_of(graph, {}).size() == 1);
    else CHECK_THROWS_WITH(gradients_of(graph, {}), Catch::Contains("no parameters"));
  }
  CHECK_THROWS_WITH(parse_plan_file(json_of("\"state\""), "test"),
                    Catch::Contains("is none of parameter, frozen, buffer"));
  CHECK_THROWS_WITH(parse_plan_file(json_of("\"buffer\"", "3"), "test"),
                    Catch::Contains("version 3 of the format is newer"));
}

}  // namespace seqtile::testing
