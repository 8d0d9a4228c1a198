// tests/planner/calibrated_test.cpp -- plans in seconds: closed forms, every plan of a layer, and known ones.
// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>

#include <algorithm>

#include "planner/compat/compat_problem.h"
#include "planner/compat/compat_strategies.h"
#include "planner/graph/graph_json.h"
#include "tests/planner/plan_files.h"
#include "tests/planner/planned.h"
#include "tests/planner/sample_graphs.h"

namespace seqtile::testing {
namespace {

using namespace planner;

/// Products take so long that all devices must share them; all else is free.
constexpr double kSecondsPerFlop = 1e-6;
CalibratedCosts costs_of_products() {
  CalibratedCosts costs;
  costs.launch_s = 0;
  costs.kernel_time = [](const KernelCall& call) { return KernelTime{call.flops * kSecondsPerFlop, false}; };
  return costs;
}

Graph mlp(const Mesh& mesh, int layers, int64_t rows, int64_t columns) {
  GraphMaker maker(mesh, "f32", 4);
  int x = maker.placeholder("x", {rows, columns});
  for (int layer = 0; layer < layers; ++layer) x = maker.linear("layer_" + std::to_string(layer), x, columns);
  return maker.output(x);
}

/// Seconds of the layers forward and backward, shared by all devices, without the gradient of the first layer's input.
double mlp_compute(int layers, double rows, double columns, int devices) {
  return kSecondsPerFlop * 2 * rows * columns * columns * (3 * layers - 1) / devices;
}

}  // namespace

TEST_CASE("plan calibrated: layers in a row reduce all weights or all activations but one", "[plan]") {
  const Mesh mesh{1, {4}, {1e-6}, {1e-9}};
  for (const int layers : {1, 2, 3, 4, 7})
    for (const auto& [rows, columns] : {std::pair<int64_t, int64_t>{64, 256}, {256, 64}}) {
      INFO(layers << " layers of " << columns << ", " << rows << " rows");
      const Planned planned = make_plan(mlp(mesh, layers, rows, columns), costs_of_products(), is_unfused);
      const double of_weight = all_reduce(mesh, 0, static_cast<double>(columns * columns) * 4),
                   of_activation = all_reduce(mesh, 0, static_cast<double>(rows * columns) * 4);
      const double communication =
          planned.solution.objective - mlp_compute(layers, static_cast<double>(rows), static_cast<double>(columns), 4);
      CHECK(communication == Approx(std::min(layers * of_weight, (layers - 1) * of_activation)).margin(1e-12));
    }
}

TEST_CASE("plan calibrated: on two axes layers reduce weights along one and activations along the other", "[plan]") {
  const Mesh mesh{2, {2, 4}, {1e-6, 1e-6}, {1e-9, 1e-9}};
  const int layers = 4;
  const auto only = [](const Node& node, const Strategy& strategy) {  // batch by axis 0, columns or sums by axis 1
    if (node.op != "call_module") return true;
    return strategy.name == "S0 rows, S1 n" || strategy.name == "S0 rows, S1 k";
  };
  const Planned both = make_plan(mlp(mesh, layers, 256, 256), costs_of_products(), only);
  const double bytes = 256 * 256 * 4, compute = mlp_compute(layers, 256, 256, 8);
  const double expected = layers * all_reduce(mesh, 0, bytes / 4) + (layers - 1) * all_reduce(mesh, 1, bytes / 2);
  CHECK(both.solution.objective - compute == Approx(expected));
  const Planned any = make_plan(mlp(mesh, layers, 256, 256), costs_of_products(), is_unfused);
  CHECK(any.solution.objective <= both.solution.objective);
}

namespace {

Graph attention_layers(const Mesh& mesh, int layers, int64_t length, int64_t heads, int64_t head_dim) {
  GraphMaker maker(mesh, "f32", 4);
  const int64_t hidden = heads * head_dim;
  int x = maker.placeholder("x", {1, length, hidden});
  for (int layer = 0; layer < layers; ++layer) {
    const std::string suffix = "_" + std::to_string(layer);
    std::vector<int> qkv;
    for (const std::string name : {"q", "k", "v"})
      qkv.push_back(maker.function(name + "_heads" + suffix, "view", {maker.linear(name + suffix, x, hidden)},
                                   {1, length, heads, head_dim}));
    const int mixed = maker.function("attention" + suffix, "attention", qkv, {1, length, heads, head_dim});
    x = maker.linear("out" + suffix, maker.function("flat" + suffix, "view", {mixed}, {1, length, hidden}), hidden);
  }
  return maker.output(x);
}

}  // namespace

TEST_CASE("plan calibrated: attention layers by heads reduce each activation once forward and once backward",
          "[plan]") {
  const Mesh mesh{1, {4}, {1e-6}, {1e-9}};
  const double activation = all_reduce(mesh, 0, 16 * 256 * 4);
  for (const int layers : {1, 2, 3}) {
    const Mesh alone{1, {1}, {0}, {0}};
    const Graph one = attention_layers(alone, layers, 16, 8, 32);
    const double compute = make_plan(one, costs_of_products(), [](const Node&, const Strategy& s) {
                             return s.name == "whole";
                           }).solution.objective;
    const Planned planned = make_plan(attention_layers(mesh, layers, 16, 8, 32), costs_of_products(), is_unfused);
    INFO(layers << " layers");
    CHECK(planned.solution.objective - compute / 4 == Approx((2 * layers - 1) * activation));  // x has no gradient
    CHECK(planned.chosen("q_0") == "S0 n");
    CHECK(planned.chosen("v_0") == "S0 n");
    CHECK(planned.chosen("attention_0") == "S0 heads");
    // Gathering the rows and cutting n costs the same.
    const auto reduces = [](const Node& node, const Strategy& s) {
      return is_unfused(node, s) && (!node.name.starts_with("out_") || s.name == "S0 k");
    };
    const Planned reduced = make_plan(attention_layers(mesh, layers, 16, 8, 32), costs_of_products(), reduces);
    CHECK(reduced.solution.objective == Approx(planned.solution.objective));
  }
}

namespace {

/// The objective of the best plan, by trying all plans.
double brute_force(const Problem& problem) {
  Choices choices(problem.costs.size());
  double best = objective(problem, choices);
  while (true) {
    bool follows = true;
    for (size_t node = 0; node < choices.size(); ++node)
      follows = follows &&
                (problem.follows[node] < 0 || choices[node] == choices[static_cast<size_t>(problem.follows[node])]);
    if (follows) best = std::min(best, objective(problem, choices));
    size_t node = 0;
    for (; node < choices.size() && ++choices[node] == static_cast<int>(problem.costs[node].size()); ++node)
      choices[node] = 0;
    if (node == choices.size()) return best;
  }
}

bool is_row(const Node& node) { return node.module == "RMSNorm" || node.target == "add" || node.op == "placeholder"; }

/// Cuts products by columns or by sums and attention by heads; keeps rows on every device.
bool is_tensor_parallel(const Node& node, const Strategy& strategy) {
  if (is_row(node)) return strategy.name == "whole";
  if (node.module == "Linear") return strategy.name == "S0 n" || strategy.name == "S0 k";
  if (node.target == "attention") return strategy.name == "S0 heads";
  return true;
}

/// Cuts operators by the batch or not at all.
bool is_data_parallel(const Node& node, const Strategy& strategy) {
  return node.op == "output" || strategy.name == "whole" || strategy.name == "S0 dim 0" || strategy.name == "S0 batch";
}

}  // namespace

TEST_CASE("plan calibrated: of one layer no plan at all is better", "[plan]") {
  for (const Mesh& mesh : {Mesh{1, {2}, {1e-6}, {1e-9}}, Mesh{1, {4}, {5e-6}, {5e-12}}, Mesh{1, {8}, {1e-5}, {1e-10}}})
    for (const auto& [batch, length] : {std::pair<int64_t, int64_t>{1, 2048}, {8, 512}, {64, 3}})
      for (const bool trains : {true, false}) {
        CalibratedCosts costs;
        costs.trains = trains;
        const Planned planned = make_plan(residual_mlp(mesh, batch, length, 512), costs);
        INFO(mesh.shape[0] << " devices, batch " << batch << ", length " << length);
        CHECK(planned.solution.objective == Approx(brute_force(planned.problem)));
      }
}

TEST_CASE(
    "plan calibrated: a decoder's rows are cut where its batch is too small, as in Megatron's sequence parallelism",
    "[plan]") {
  for (const int devices : {4, 8}) {
    const Mesh mesh{1, {devices}, {5e-6}, {1 / 200e9}};
    const Graph graph = decoder(mesh, {});
    const Planned best = make_plan(graph, {});
    INFO(devices << " devices");
    for (const char* node : {"norm_1_1", "norm_2_0", "add_1_0", "add_2_0"}) CHECK(best.chosen(node) == "S0 dim 1");
    CHECK(best.chosen("q_1") == "S0 n of gathered rows");
    CHECK(best.chosen("v_1") == "S0 n of gathered rows");
    CHECK(best.chosen("gate_up_0") == "S0 n of gathered rows");
    CHECK(best.chosen("attention_0") == "S0 heads");
    CHECK(best.chosen("out_0") == "S0 k to scattered rows");
    CHECK(best.chosen("down_0") == "S0 k to scattered rows");
    const double tensor_parallel = make_plan(graph, {}, is_tensor_parallel).solution.objective,
                 data_parallel = make_plan(graph, {}, is_data_parallel).solution.objective,
                 unfused = make_plan(graph, {}, is_unfused).solution.objective;
    CHECK(best.solution.objective < 0.9 * tensor_parallel);
    CHECK(best.solution.objective < 0.5 * data_parallel);  // a batch of two has no part for each device
    CHECK(best.solution.objective < unfused);
    CHECK(unfused < tensor_parallel);
  }
}

TEST_CASE("plan calibrated: models that are exported have no operator that is not known, and exact plans", "[plan]") {
  std::vector<std::string> files = {SEQTILE_SOURCE_DIR "/bench/plan/resnet152_2x2.json.gz",
                                    SEQTILE_SOURCE_DIR "/bench/plan/gpt2_24_layers_2x2.json.gz"};
  for (const char* name : kPlanFiles) files.push_back(plan_file(name));
  for (const std::string& file : files) {
    Graph graph = *read_plan_file(file).graph;
    graph.mesh.alpha = {5e-6, 5e-6}, graph.mesh.beta = {5e-12, 5e-11};
    INFO(file);
    CHECK(make_plan(graph, {}).strategies.unknown.empty());
  }
}

TEST_CASE("plan calibrated: a large batch of short rows is cut by the batch", "[plan]") {
  const Mesh mesh{1, {4}, {5e-6}, {1 / 25e9}};
  const Planned best = make_plan(decoder(mesh, {64, 2048}), {});
  CHECK(best.solution.objective ==
        Approx(make_plan(decoder(mesh, {64, 2048}), {}, is_data_parallel).solution.objective));
}

TEST_CASE("plan calibrated: a budget cuts parameters that are inputs, for two more gathers", "[plan]") {
  const Graph graph = *read_plan_file(plan_file("gpt_mlp_384")).graph;
  const Planned planned = make_plan(graph, {});
  const double least = solve(planned.problem, {.memory_budget = 0}).smallest_budget;
  const Solution lean = solve(planned.problem, {.memory_budget = (planned.solution.memory + least) / 2});
  CHECK(lean.is_feasible);
  CHECK(lean.memory < planned.solution.memory);
  CHECK(lean.objective > planned.solution.objective);
}

namespace {

bool has_layouts(const Strategy& ours, const Strategy& theirs) {
  if (ours.operands.size() != theirs.operands.size()) return false;
  for (size_t i = 0; i < ours.operands.size(); ++i)
    for (size_t member = 0; member < ours.operands[i].size(); ++member)
      if (ours.operands[i][member].with_partial(0) != theirs.operands[i][member]) return false;
  for (size_t member = 0; member < ours.results.size(); ++member)
    if (ours.results[member].with_partial(0) != theirs.results[member]) return false;
  return true;
}

/// Operators that the known planner gathers whole if a cut of their input does not become one of their result.
bool gathers(const Node& node) {
  const std::string name = operator_name(node);
  return name == "view" || name == "flatten" || name == "AdaptiveAvgPool2d" || name == "split" || name == "getitem";
}

}  // namespace

TEST_CASE("plan calibrated: the known planner's plan at the same prices is no better", "[plan]") {
  for (const std::string name : kPlanFiles)
    for (const double beta : {1e-12, 1e-10, 1e-8}) {
      Graph graph = *read_plan_file(plan_file(name)).graph, known = graph;
      const Choices theirs = solve(compat_problem(known)).choices;
      graph.mesh.alpha = {1e-6, 1e-6}, graph.mesh.beta = {beta, beta};
      const Planned planned = make_plan(graph, {});
      Choices same;  // our strategies with the known planner's layouts
      for (size_t n = 0; n < graph.nodes.size(); ++n) {
        const Strategy& wanted = known.nodes[n].strategies[static_cast<size_t>(theirs[n])];
        const std::vector<Strategy>& ours = planned.graph.nodes[n].strategies;
        auto found = std::ranges::find_if(ours, [&](const Strategy& s) { return has_layouts(s, wanted); });
        INFO(name << " " << graph.nodes[n].name << " " << wanted.name);
        if (!gathers(graph.nodes[n])) REQUIRE(found != ours.end());
        if (found == ours.end()) found = std::ranges::find(ours, "whole", &Strategy::name);
        REQUIRE(found != ours.end());
        same.push_back(static_cast<int>(found - ours.begin()));
        if (const int leader = planned.problem.follows[n]; leader >= 0)
          REQUIRE(same[n] == same[static_cast<size_t>(leader)]);
      }
      const double repriced = objective(planned.problem, same);
      INFO(name << ", beta " << beta);
      CHECK(planned.solution.objective <= repriced * (1 + 1e-12));
      if (name == "resnet50_b128_32px_2x2" && beta == 1e-8) CHECK(planned.solution.objective < 0.9 * repriced);
    }
}

}  // namespace seqtile::testing
