// tests/planner/compat_test.cpp -- the known planner's costs, problems and optima, number by number.
// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>

#include <fmt/format.h>
#include <zlib.h>

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "planner/compat/compat_problem.h"
#include "planner/compat/compat_reshard.h"
#include "planner/graph/graph_json.h"
#include "planner/solver/solver.h"
#include "tests/planner/plan_files.h"

namespace seqtile::testing {
namespace {

using nlohmann::json;
using namespace planner;

json raw(const std::string& name) {
  gzFile file = gzopen(plan_file(name).c_str(), "rb");
  std::string text;
  char buffer[4096];
  for (int count; (count = gzread(file, buffer, sizeof buffer)) > 0;) text.append(buffer, static_cast<size_t>(count));
  gzclose(file);
  return json::parse(text);
}

struct Compared {
  int64_t searches = 0, different = 0;
};

/// Compares the costs from all strategies of an input to one strategy of its reader with the stored costs.
void compare(const Graph& graph, const Node& node, size_t operand, size_t strategy, const json& stored, Compared& all) {
  const Node& producer = graph.nodes[static_cast<size_t>(node.inputs[operand])];
  for (size_t source = 0; source < producer.strategies.size(); ++source) {
    ReshardCost sum;
    for (size_t member = 0; member < producer.results.size(); ++member) {
      const TensorType& type = producer.results[member];
      const ReshardCost cost = compat_reshard(graph.mesh, type.shape, static_cast<int>(type.element_bytes),
                                              OrderedLayout(producer.strategies[source].results[member]),
                                              node.strategies[strategy].operands[operand][member]);
      sum.forward += cost.forward, sum.backward += cost.backward, sum.total += cost.total;
    }
    ++all.searches;
    const json& wanted = stored.at(source);
    all.different += sum.forward != wanted.at(0) || sum.backward != wanted.at(1) || sum.total != wanted.at(2);
  }
}

Compared compare_searches(const std::string& name) {
  const Graph graph = *read_plan_file(plan_file(name)).graph;
  const json nodes = raw(name).at("nodes");
  Compared all;
  for (size_t i = 0; i < graph.nodes.size(); ++i)
    for (size_t operand = 0; operand < graph.nodes[i].inputs.size(); ++operand)
      for (size_t strategy = 0; strategy < graph.nodes[i].strategies.size(); ++strategy) {
        const std::string& input = graph.nodes[static_cast<size_t>(graph.nodes[i].inputs[operand])].name;
        compare(graph, graph.nodes[i], operand, strategy, nodes[i]["strategies"][strategy]["reshard"].at(input), all);
      }
  return all;
}

}  // namespace

TEST_CASE("plan: each stored cost of a change of layout is ours, bit for bit", "[plan]") {
  std::map<std::string, int64_t> searches;
  for (const std::string name : kPlanFiles) {
    const Compared all = compare_searches(name);
    INFO(name << ": " << all.different << " of " << all.searches << " differ");
    CHECK(all.different == 0);
    searches[name] = all.searches;
  }
  CHECK(searches["resnet50_b128_32px_2x2"] == 39733);
}

TEST_CASE("plan: the problem that is made of a graph is the stored one", "[plan]") {
  for (const std::string name : kPlanFiles) {
    INFO(name);
    const PlanFile file = read_plan_file(plan_file(name));
    const Problem ours = compat_problem(*file.graph);
    CHECK(ours.costs == file.problem->costs);
    CHECK(ours.memory == file.problem->memory);
    REQUIRE(ours.edges.size() == file.problem->edges.size());
    for (size_t i = 0; i < ours.edges.size(); ++i) {
      CHECK(ours.edges[i].producer == file.problem->edges[i].producer);
      CHECK(ours.edges[i].consumer == file.problem->edges[i].consumer);
      CHECK(ours.edges[i].cost == file.problem->edges[i].cost);
    }
    for (int node = 0; node < ours.num_nodes(); ++node) CHECK(leader_of(ours, node) == leader_of(*file.problem, node));
  }
}

TEST_CASE("plan: stored and computed problems have the stored optimum, and each plan costs the same on the other side",
          "[plan]") {
  for (const std::string name : kPlanFiles) {
    INFO(name);
    const PlanFile file = read_plan_file(plan_file(name));
    const Problem ours = compat_problem(*file.graph);
    const Solution of_stored = solve(*file.problem), of_ours = solve(ours);
    const auto is_stored = [&](double value) { return std::abs(value - *file.objective) <= 1e-9 * *file.objective; };
    CHECK(is_stored(of_stored.objective));
    CHECK(is_stored(of_ours.objective));
    CHECK(of_stored.is_exact());
    CHECK(is_stored(objective(ours, of_stored.choices)));
    CHECK(is_stored(objective(*file.problem, of_ours.choices)));
    const auto stored_choices = raw(name).at("solution").at("s_val").get<Choices>();
    CHECK(is_stored(objective(ours, stored_choices)));
  }
  CHECK(std::abs(*read_plan_file(plan_file("resnet50_b128_32px_2x2")).objective - 8148273260.36) < 0.01);
}

TEST_CASE("plan: layouts are integers, with names that come back", "[plan]") {
  const Layout layout = Layout().with(0, 3).with(2, 4).with_partial(0);
  CHECK(layout.axes_of(0) == 3);
  CHECK(layout.axes_of(1) == 0);
  CHECK(layout.cutting() == 7);
  CHECK(layout_name(layout, 3) == "[S01, R, S2]");
  CHECK(layout_name(Layout().with(1, 1).with_partial(2), 2) == "[R, S0]+P1");
  for (AxisSet axes = 0; axes < 8; ++axes) CHECK(parse_axes(axes_name(axes)) == axes);
  for (const char* bad : {"", "S", "S10", "S3", "R0", "x", "S00"})
    CHECK_THROWS_WITH(parse_axes(bad), Catch::Contains("no cut"));
}

TEST_CASE("plan: the order in which dimensions were cut is kept", "[plan]") {
  const OrderedLayout cut = OrderedLayout().with(2, 1).with(0, 2);
  REQUIRE(cut.cut_dims().size() == 2);
  CHECK(cut.cut_dims()[0] == 2);
  CHECK(cut.with(2, 0).cut_dims()[0] == 0);
  CHECK(cut.with(2, 0).cut_dims().size() == 1);
  CHECK(OrderedLayout(Layout().with(2, 1).with(0, 2)).cut_dims()[0] == 0);
}

TEST_CASE("plan compat: ten thousand layers repeat the first one, and are found in a moment", "[plan]") {
  constexpr int kLayers = 10000, kNodes = 12;
  Graph graph;
  const auto add = [&](const std::string& target) {
    Node node;
    node.name = fmt::format("n{}", graph.nodes.size()), node.op = "call_function", node.target = target;
    if (!graph.nodes.empty()) node.arguments = {graph.nodes.back().name};
    node.results.push_back({{8, 4}, "f32", 4});
    graph.nodes.push_back(node);
  };
  add("begin");
  for (int layer = 0; layer < kLayers; ++layer)
    for (int i = 0; i < kNodes; ++i) add(fmt::format("operator_{}", i));
  for (int i = 0; i < 3; ++i) add("end");
  const std::vector<int> repeats = repeated_nodes(graph, 10);
  CHECK(std::count(repeats.begin(), repeats.begin() + 1 + kNodes, -1) == 1 + kNodes);
  int wrong = 0;
  for (int layer = 1; layer < kLayers; ++layer)
    for (int i = 0; i < kNodes; ++i) wrong += repeats[static_cast<size_t>(1 + layer * kNodes + i)] != 1 + i;
  CHECK(wrong == 0);
}

}  // namespace seqtile::testing
