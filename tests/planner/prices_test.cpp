// tests/planner/prices_test.cpp -- prices of single strategies, worked by hand.
// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>

#include <algorithm>

#include "tests/planner/graph_maker.h"
#include "tests/planner/planned.h"

namespace seqtile::testing {

using namespace planner;

namespace {

Strategy strategy_of(const Planned& planned, const std::string& node, const std::string& name) {
  for (const Node& one : planned.graph.nodes)
    for (const Strategy& strategy : one.strategies)
      if (one.name == node && strategy.name == name) return strategy;
  FAIL(node << " has no strategy " << name);
  std::abort();
}

}  // namespace

TEST_CASE("plan prices: a fused kernel takes the longer of two, what overlap costs, and a launch", "[plan]") {
  constexpr int kDevices = 4;
  constexpr double kBytes = 2, kRows = 1024, kIn = 512, kOut = 2048;
  for (const auto& [beta, slowdown] : {std::pair(1e-12, 1.0), {1e-8, 1.0}, {1e-10, 1.25}, {1e-10, 2.0}, {1e-8, 3.0}}) {
    const Mesh mesh{1, {kDevices}, {1e-6}, {beta}};
    GraphMaker maker(mesh, "bf16", 2);
    const int x = maker.norm("norm", maker.placeholder("x", {1, 1024, 512}));
    CalibratedCosts costs;
    costs.overlap_slowdown = slowdown;
    const Planned planned = make_plan(maker.output(maker.linear("y", x, 2048)), costs);
    const DeviceFacts device;
    const auto product = [&](double m, double n, double k) {
      return device.launch_s +
             std::max(2 * m * n * k / device.peak_flops, kBytes * (m * n + n * k + m * k) / device.bandwidth);
    };
    const auto gather = [&, beta = beta](double whole) { return 3 * 1e-6 + 3.0 / 4 * whole * kBytes * beta; };
    const double share = std::min(slowdown - 1, 1.0);  // visible part of the shorter lane
    const auto fused = [&, share = share](double compute, double communication) {
      return std::max(compute, communication) + share * std::min(compute, communication) + device.launch_s;
    };
    const double n = kOut / kDevices, k = kIn / kDevices;
    const Strategy gathered = strategy_of(planned, "y", "S0 n of gathered rows"),
                   scattered = strategy_of(planned, "y", "S0 k to scattered rows");
    CHECK(gathered.compute + gathered.communication ==
          Approx(fused(product(kRows, n, kIn), gather(kRows * kIn)) +
                 fused(product(n, kIn, kRows) + product(kRows, kIn, n), 2 * gather(kRows * kIn))));
    CHECK(scattered.compute + scattered.communication ==
          Approx(fused(product(kRows, kOut, k), gather(kRows * kOut)) +
                 fused(product(kOut, k, kRows) + product(kRows, k, kOut), gather(kRows * kOut))));
    // Cut rows need a sum of the weight's gradient. The weight's memory has two copies and two moments in f32.
    const Strategy rows = strategy_of(planned, "y", "S0 rows");
    CHECK(rows.communication == Approx(all_reduce(mesh, 0, kIn * kOut * kBytes)));
    CHECK(rows.held() == Approx(kIn * kOut * (2 * kBytes + 8) + kRows / kDevices * kOut * kBytes));
    CHECK(gathered.held() == Approx(kIn * n * (2 * kBytes + 8) + kRows * n * kBytes));
  }
}

namespace {

/// True if queries are cut: the causal mask of `attention` leaves the last device most work.
bool cuts_queries(const Strategy& strategy) {
  return strategy.name.find("0 queries") != std::string::npos || strategy.name.find("1 queries") != std::string::npos;
}

}  // namespace

TEST_CASE("plan prices: attention with heads before lengths has the same prices", "[plan]") {
  const Mesh mesh{2, {2, 2}, {1e-6, 1e-6}, {1e-10, 1e-9}};
  std::vector<double> sums[2];
  for (const bool heads_first : {false, true}) {
    GraphMaker maker(mesh, "bf16", 2);
    const auto shape = [&](int64_t heads) {
      return heads_first ? PlanShape{2, heads, 512, 64} : PlanShape{2, 512, heads, 64};
    };
    const int q = maker.placeholder("q", shape(16)), k = maker.placeholder("k", shape(4)),
              v = maker.placeholder("v", shape(4));
    const std::string name = heads_first ? "torch._C._nn.scaled_dot_product_attention" : "attention";
    const Planned planned = make_plan(maker.output(maker.function("y", name, {q, k, v}, shape(16))), {});
    CHECK(planned.strategies.unknown.empty());
    for (const Strategy& strategy : planned.graph.nodes[3].strategies)
      if (!cuts_queries(strategy)) sums[heads_first].push_back(strategy.compute + strategy.communication);
    std::ranges::sort(sums[heads_first]);
  }
  CHECK(sums[0].size() > 10);
  CHECK(sums[0] == sums[1]);
}

TEST_CASE("plan prices: parameters in parts are gathered twice, their gradients scattered; a budget asks for it",
          "[plan]") {
  const Mesh mesh{1, {4}, {1e-6}, {1e-9}};
  GraphMaker maker(mesh, "bf16", 2);
  int x = maker.placeholder("x", {64, 512});
  for (const char* layer : {"y", "z"}) x = maker.linear(layer, x, 512);
  CalibratedCosts costs;
  costs.cuts_parameters = true;
  const auto by_rows = [](const Node& node, const Strategy& strategy) {
    return node.op != "call_module" || strategy.name.starts_with("S0 rows");
  };
  const Planned planned = make_plan(maker.output(x), costs, by_rows);
  const Strategy whole = strategy_of(planned, "z", "S0 rows"),
                 parts = strategy_of(planned, "z", "S0 rows, parameters in parts");
  const double weight = 512 * 512 * 2, all_gather = all_reduce(mesh, 0, weight) / 2;
  CHECK(parts.communication == Approx(3 * all_gather));
  CHECK(whole.communication == Approx(2 * all_gather));
  CHECK(whole.held() - parts.held() == Approx(512 * 512 * 12 * 0.75));
  CHECK(planned.chosen("z") == "S0 rows");
  const Solution one = solve(planned.problem, {.memory_budget = planned.solution.memory - 512 * 512 * 6});
  CHECK(one.objective == Approx(planned.solution.objective + all_gather));  // one of the two layers
  const double least = solve(planned.problem, {.memory_budget = 0}).smallest_budget;
  const Solution both = solve(planned.problem, {.memory_budget = least});
  CHECK(both.objective == Approx(planned.solution.objective + 2 * all_gather));
}

TEST_CASE("plan prices: parameters of an operator that is kept whole have memory, traffic and gradients", "[plan]") {
  constexpr double kWeight = 1024 * 4096, kResult = 64 * 1024, kBytes = 2;
  for (const bool trains : {true, false}) {
    GraphMaker maker(Mesh{1, {4}, {1e-6}, {1e-9}}, "bf16", 2);
    const int y = maker.module("y", "Mystery", maker.placeholder("x", {64, 1024}), {64, 1024}, {1024, 4096});
    CalibratedCosts costs;
    costs.trains = trains;
    const Strategy whole = strategy_of(make_plan(maker.output(y), costs), "y", "whole");
    const DeviceFacts device;
    const double forward = device.launch_s + (kWeight + 2 * kResult) * kBytes / device.bandwidth;
    CHECK(whole.compute == Approx(trains ? 2 * forward : forward));  // x has no gradient, the weight does
    CHECK(whole.communication == 0);                                 // each device has all of the gradient
    CHECK(whole.memory == Approx(trains ? kWeight * (kBytes + 8) : kWeight * kBytes));
    CHECK(whole.gradient == (trains ? kWeight * kBytes : 0));
    CHECK(whole.activation == kResult * kBytes);
  }
}

TEST_CASE("plan prices: an operator that is not known, or not of this form, is kept whole and named", "[plan]") {
  const Mesh mesh{2, {2, 2}, {1e-6, 1e-6}, {1e-9, 1e-9}};
  const std::vector<PlanShape> shapes = {{16, 8, 4, 4}, {3, 5, 1, 2, 2}, {7}, {}};
  for (const char* name : {"Conv2d", "matmul", "attention", "scaled_dot_product_attention", "add", "rotary",
                           "silu_and_mul", "softmax", "LayerNorm", "BatchNorm2d", "Embedding", "MaxPool2d", "view",
                           "permute", "transpose", "split", "getitem", "linear", "mystery"}) {
    int unknown = 0;
    for (const size_t num_inputs : {1, 2, 3})
      for (const PlanShape& from : shapes)
        for (const PlanShape& to : shapes) {
          INFO(name << " of " << num_inputs << ", rank " << from.size() << " to " << to.size());
          GraphMaker maker(mesh, "f32", 4);
          std::vector<int> inputs;
          for (size_t i = 0; i < num_inputs; ++i) inputs.push_back(maker.placeholder("x" + std::to_string(i), from));
          const int y = maker.function("y", name, inputs, to);
          const Planned planned = make_plan(maker.output(y), {});
          const Node& node = planned.graph.nodes[static_cast<size_t>(y)];
          REQUIRE(!node.strategies.empty());
          if (planned.strategies.unknown.empty()) continue;
          ++unknown;
          CHECK(planned.strategies.unknown.text() == std::string(name) + " (node y)");
          CHECK(node.strategies.size() == 1);
          CHECK(node.strategies[0].results[0] == Layout());
        }
    INFO(name);
    CHECK(unknown > 0);
  }
}

TEST_CASE("plan prices: modules whose parameters do not fit their inputs are kept whole", "[plan]") {
  struct One {
    const char* module;
    PlanShape weight, bias;
    bool fits;
  };
  for (const One& one :
       {One{"Linear", {64, 64}, {64}, true}, One{"Linear", {64, 64}, {}, false}, One{"Linear", {64, 64}, {7, 9}, false},
        One{"LayerNorm", {64}, {64}, true}, One{"LayerNorm", {8, 64}, {8, 64}, true},
        One{"LayerNorm", {64}, {7}, false}, One{"LayerNorm", {32}, {32}, false}, One{"RMSNorm", {}, {}, false}}) {
    GraphMaker maker(Mesh{1, {2}, {1e-6}, {1e-9}}, "f32", 4);
    const int y = maker.module("y", one.module, maker.placeholder("x", {4, 8, 64}), {4, 8, 64}, one.weight);
    Graph graph = maker.output(y);
    graph.nodes[static_cast<size_t>(y)].parameters["bias"] = one.bias;
    INFO(one.module << " with a weight of rank " << one.weight.size() << ", a bias of rank " << one.bias.size());
    const Planned planned = make_plan(graph, {});
    CHECK(planned.strategies.unknown.empty() == one.fits);
    CHECK((planned.graph.nodes[static_cast<size_t>(y)].strategies.size() > 1) == one.fits);
  }
}

TEST_CASE("plan prices: a member of a tuple is the only one that changes its layout, from behind too", "[plan]") {
  const auto cost = [](const std::string& index) {
    GraphMaker maker(Mesh{1, {2}, {1e-6}, {1e-9}}, "f32", 4);
    const int split = maker.function("s", "split", {maker.norm("norm", maker.placeholder("x", {8, 64}))}, {8, 48});
    const int y = maker.function("y", "getitem", {split}, {8, 16});
    Graph graph = maker.output(y);
    Node& tuple = graph.nodes[static_cast<size_t>(split)];
    tuple.is_tuple = true;
    tuple.results.push_back({{8, 16}, "f32", 4});
    graph.nodes[static_cast<size_t>(y)].arguments = {"s", index};
    const Planned planned = make_plan(graph, {});
    double sum = 0;
    for (const Edge& edge : planned.problem.edges)
      if (edge.consumer == y)
        for (const double seconds : edge.cost) sum += seconds;
    return sum;
  };
  CHECK(cost("0") > cost("1"));
  CHECK(cost("1") > 0);
  CHECK(cost("-1") == cost("1"));
  CHECK(cost("-2") == cost("0"));
  CHECK(cost("2") == Approx(cost("0") + cost("1")));  // no such member: the seconds of both members
  CHECK(cost("-3") == cost("2"));
}

TEST_CASE("plan prices: gates of GELU are cut as those of SiLU, under their own names", "[plan]") {
  for (const std::string name : {"silu_and_mul", "gelu_and_mul", "gelu_tanh_and_mul", "relu_squared_and_mul"}) {
    CalibratedCosts costs;
    std::vector<std::string> calls;
    costs.kernel_time = [&](const KernelCall& call) {
      calls.emplace_back(call.operation);
      return roofline({})(call);
    };
    GraphMaker maker(Mesh{1, {2}, {1e-6}, {1e-9}}, "bf16", 2);
    const int gated = maker.function("y", name, {maker.linear("up", maker.placeholder("x", {4, 64}), 256)}, {4, 128});
    const Planned planned = make_plan(maker.output(gated), costs);
    INFO(name);
    CHECK(planned.strategies.unknown.empty());
    CHECK(planned.graph.nodes[static_cast<size_t>(gated)].strategies.size() == 3);
    CHECK(std::ranges::count(calls, name) == 3);
    CHECK(std::ranges::count(calls, name + "_backward") == 3);
  }
}

TEST_CASE("plan prices: attention with a window computes with the keys in it", "[plan]") {
  constexpr int64_t kLength = 131072, kWindow = 4096;
  const auto planned = [&](const std::string& window) {
    GraphMaker maker(Mesh{1, {4}, {1e-6}, {1e-9}}, "bf16", 2);
    const int q = maker.placeholder("q", {1, kLength, 8, 128}), k = maker.placeholder("k", {1, kLength, 8, 128}),
              v = maker.placeholder("v", {1, kLength, 8, 128});
    const int y = maker.function("y", "attention", {q, k, v}, {1, kLength, 8, 128});
    Graph graph = maker.output(y);
    graph.nodes[static_cast<size_t>(y)].arguments = {"q", "k", "v", window};
    CalibratedCosts costs;
    costs.trains = false;
    costs.kernel_time = [](const KernelCall& call) { return KernelTime{call.flops, false}; };
    return make_plan(graph, costs);
  };
  const Planned all = planned("None"), some = planned("window=4096");
  for (const char* name : {"whole", "S0 heads"})
    CHECK(strategy_of(some, "y", name).compute == strategy_of(all, "y", name).compute * kWindow / kLength);
  // Without a window the last quarter of the queries sees 7/16 of all that queries see.
  CHECK(strategy_of(some, "y", "S0 queries").compute == strategy_of(some, "y", "whole").compute / 4);
  CHECK(strategy_of(all, "y", "S0 queries").compute == Approx(strategy_of(all, "y", "whole").compute * 7 / 16));
  CHECK(strategy_of(all, "y", "S0 length with gathered keys").compute ==
        Approx(strategy_of(all, "y", "whole").compute / 4));
  CHECK(strategy_of(planned("window=999999"), "y", "whole").compute == strategy_of(all, "y", "whole").compute);
}

TEST_CASE("plan prices: a linear whose weight and bias are inputs has them cut as its result", "[plan]") {
  GraphMaker maker(Mesh{1, {2}, {1e-6}, {1e-9}}, "f32", 4);
  const int x = maker.placeholder("x", {4, 8, 64}), w = maker.placeholder("w", {32, 64}),
            bias = maker.placeholder("bias", {32});
  const Planned planned = make_plan(maker.output(maker.function("y", "linear", {x, w, bias}, {4, 8, 32})), {});
  CHECK(planned.strategies.unknown.empty());
  const auto of_bias = [&](const char* name) { return strategy_of(planned, "y", name).operands[2][0]; };
  CHECK(of_bias("S0 n") == Layout().with(0, 1));
  CHECK(of_bias("S0 n of gathered rows") == Layout().with(0, 1));
  CHECK(of_bias("S0 rows") == Layout().with_partial(1));  // the bias's gradient is a partial sum
  CHECK(of_bias("S0 k to scattered rows") == Layout().with_partial(1));
  CHECK(of_bias("S0 k") == Layout());
}

TEST_CASE("plan prices: the output of a tuple stays cut where all members are", "[plan]") {
  GraphMaker maker(Mesh{1, {2}, {1e-6}, {1e-9}}, "f32", 4);
  constexpr int64_t kRows = 1 << 14;
  const int normed = maker.norm("norm", maker.placeholder("x", {8, kRows, 64}));
  const int split = maker.function("s", "split", {normed}, {8, kRows, 48});
  Graph graph = maker.output(split);
  Node& tuple = graph.nodes[static_cast<size_t>(split)];
  tuple.is_tuple = true;
  tuple.results.push_back({{8, kRows, 1}, "f32", 4});
  const Planned planned = make_plan(graph, {});
  CHECK(planned.strategies.unknown.empty());
  CHECK(planned.graph.nodes.back().strategies.size() == 3);  // no strategy cuts the last dimension
  CHECK(strategy_of(planned, "output", "S0 dim 0").operands[0] == std::vector(2, Layout().with(0, 1)));
  CHECK(planned.chosen("output") != "whole");
}

TEST_CASE("plan prices: a fused kernel sends the largest part of uneven rows", "[plan]") {
  constexpr double kAlpha = 1e-6, kBeta = 1e-3, kIn = 64, kBytes = 2;
  GraphMaker maker(Mesh{1, {2}, {kAlpha}, {kBeta}}, "bf16", 2);
  CalibratedCosts costs;
  costs.trains = false;
  const int x = maker.placeholder("x", {3, 5, 64});
  const Planned planned = make_plan(maker.output(maker.linear("y", x, 64)), costs);
  const Strategy gathered = strategy_of(planned, "y", "S0 n of gathered rows");
  const double rows = 3 * 3;  // each sequence's larger part
  CHECK(gathered.compute + gathered.communication == Approx(kAlpha + rows * kIn * kBytes * kBeta + costs.launch_s));
}

TEST_CASE("plan prices: what only reads data has no backward pass", "[plan]") {
  const auto planned = [](bool trains) {
    GraphMaker maker(Mesh{1, {2}, {1e-6}, {1e-9}}, "bf16", 2);
    const int x = maker.placeholder("x", {2, 64, 4, 16}), w = maker.placeholder("w", {16, 16});
    const int mixed = maker.function(
        "mixed", "attention", {x, maker.placeholder("k", {2, 64, 4, 16}), maker.placeholder("v", {2, 64, 4, 16})},
        {2, 64, 4, 16});
    const int of_data = maker.function("of_data", "linear", {mixed, w}, {2, 64, 4, 16});
    const int y = maker.function("y", "linear", {maker.norm("norm", of_data), w}, {2, 64, 4, 16});
    CalibratedCosts costs;
    costs.trains = trains;
    return make_plan(maker.output(y), costs);
  };
  const Planned training = planned(true), inference = planned(false);
  const auto seconds = [](const Planned& of, const char* node, const char* name) {
    const Strategy strategy = strategy_of(of, node, name);
    return strategy.compute + strategy.communication;
  };
  for (const char* name : {"whole", "S0 heads", "S0 length with gathered keys"})
    CHECK(seconds(training, "mixed", name) == seconds(inference, "mixed", name));
  for (const char* name : {"whole", "S0 n", "S0 n of gathered rows", "S0 k to scattered rows"})
    CHECK(seconds(training, "of_data", name) == seconds(inference, "of_data", name));
  // Only the input has a gradient.
  CHECK(seconds(training, "y", "whole") == Approx(2 * seconds(inference, "y", "whole")));
}

}  // namespace seqtile::testing
