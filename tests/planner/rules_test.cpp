// tests/planner/rules_test.cpp -- strategies of products, attention and others, done with numbers (rule_harness.h).
// SPDX-License-Identifier: Apache-2.0
#include "tests/planner/rule_harness.h"

namespace seqtile::testing {
namespace {

using namespace planner;

/// y[b, i, n] = sum over k of a[b, i, k] w(b, k, n), where w is [n, k], or [b, k, n].
Tensor product(const Tensors& operands, bool is_linear) {
  Tensor a = operands[0], w = operands[1];
  const int64_t n = is_linear ? w.shape[0] : w.shape[2], sum = a.shape[2];
  Tensor y({a.shape[0], a.shape[1], n});
  y.each([&](const PlanShape& at) {
    for (int64_t k = 0; k < sum; ++k)
      y(at) += a({at[0], at[1], k}) * (is_linear ? w({at[2], k}) : w({at[0], k, at[2]}));
  });
  return y;
}

Tensors product_gradients(const Tensors& operands, const Tensor& given, bool is_linear) {
  Tensor a = operands[0], w = operands[1], dy = given, da(a.shape), dw(w.shape);
  dy.each([&](const PlanShape& at) {
    for (int64_t k = 0; k < a.shape[2]; ++k) {
      const PlanShape of_w = is_linear ? PlanShape{at[2], k} : PlanShape{at[0], k, at[2]};
      da({at[0], at[1], k}) += dy(at) * w(of_w);
      dw(of_w) += dy(at) * a({at[0], at[1], k});
    }
  });
  return {da, dw};
}

}  // namespace

TEST_CASE("plan rules: linears' and products' parts make up results and gradients", "[plan]") {
  for (const Mesh& mesh : kMeshes)
    for (const bool is_linear : {true, false}) {
      GraphMaker maker(mesh, "f32", 4);
      const int x = maker.placeholder("x", {5, 8, 12}),
                w = maker.placeholder("w", is_linear ? PlanShape{9, 12} : PlanShape{5, 12, 9});
      const int y = maker.function("y", is_linear ? "linear" : "matmul", {x, w}, {5, 8, 9});
      int tried = 0;
      const auto wrong = wrong_strategies(
          maker.output(y), y, [&](const Tensors& of, const PlanShape&) { return product(of, is_linear); },
          [&](const Tensors& of, const Tensor& dy) { return product_gradients(of, dy, is_linear); }, tried);
      INFO(mesh.num_axes << " axes");
      CHECK(wrong == std::vector<std::string>());
      CHECK(tried >= 1 << (2 * mesh.num_axes));
    }
}

TEST_CASE("plan rules: a sum with a broadcast operand, whose gradient is summed where it is repeated", "[plan]") {
  for (const Mesh& mesh : kMeshes) {
    GraphMaker maker(mesh, "f32", 4);
    const int x = maker.placeholder("x", {5, 8, 12}), bias = maker.placeholder("bias", {8, 1});
    const int y = maker.function("y", "add", {x, bias}, {5, 8, 12});
    int tried = 0;
    const auto wrong = wrong_strategies(
        maker.output(y), y,
        [](const Tensors& of, const PlanShape&) {
          Tensor sum(of[0].shape), a = of[0], b = of[1];
          sum.each([&](const PlanShape& at) { sum(at) = a(at) + b({at[1], 0}); });
          return sum;
        },
        [](const Tensors& of, const Tensor& given) {
          Tensor dy = given, db(of[1].shape);
          dy.each([&](const PlanShape& at) { db({at[1], 0}) += dy(at); });
          return Tensors{dy, db};
        },
        tried);
    CHECK(wrong == std::vector<std::string>());
    CHECK(tried >= 1 << mesh.num_axes);
  }
}

namespace {

/// Attention without the maximum, because scores are small. A head of the whole uses its group's keys; the result is
/// NaN if a device does not have them.
Tensor attention(const Tensors& operands, int64_t heads_of_group) {
  Tensor q = operands[0], k = operands[1], v = operands[2], y(q.shape);
  for (int64_t b = 0; b < q.shape[0]; ++b)
    for (int64_t i = 0; i < q.shape[1]; ++i)
      for (int64_t h = 0; h < q.shape[2]; ++h) {
        const int64_t group = (q.first[2] + h) / heads_of_group - k.first[2];
        if (group < 0 || group >= k.shape[2]) {
          y({b, i, h, 0}) = std::nan("");
          continue;
        }
        double sum = 0;
        for (int64_t j = 0; j < k.shape[1]; ++j) {
          double score = 0;
          for (int64_t d = 0; d < q.shape[3]; ++d) score += q({b, i, h, d}) * k({b, j, group, d});
          sum += std::exp(score);
          for (int64_t d = 0; d < q.shape[3]; ++d) y({b, i, h, d}) += std::exp(score) * v({b, j, group, d});
        }
        for (int64_t d = 0; d < q.shape[3]; ++d) y({b, i, h, d}) /= sum;
      }
  return y;
}

Graph attention_graph(const Mesh& mesh, const PlanShape& q, const PlanShape& keys) {
  GraphMaker maker(mesh, "f32", 4);
  const int of_q = maker.placeholder("q", q), k = maker.placeholder("k", keys), v = maker.placeholder("v", keys);
  return maker.output(maker.function("y", "attention", {of_q, k, v}, q));
}

/// The wrong strategies of attention, node 3 of the graph. `tried` counts all but fused ones.
std::vector<std::string> wrong_attentions(const Mesh& mesh, int64_t heads, int64_t groups, int& tried) {
  const Forward forward = [&](const Tensors& of, const PlanShape&) { return attention(of, heads / groups); };
  return wrong_strategies(
      attention_graph(mesh, {2, 3, heads, 1}, {2, 3, groups, 1}), 3, forward,
      [&](const Tensors& of, const Tensor& dy) { return gradients_by_differences(forward, of, dy); }, tried);
}

}  // namespace

TEST_CASE("plan rules: attention by batch, heads, queries and heads of queries", "[plan]") {
  for (const auto& [heads, groups] : {std::pair<int64_t, int64_t>{4, 4}, {4, 2}, {4, 1}}) {
    int tried = 0;
    INFO(heads << " heads, " << groups << " groups");
    CHECK(wrong_attentions(Mesh{1, {2}}, heads, groups, tried) == std::vector<std::string>());
    CHECK(tried == 4);
  }
}

TEST_CASE("plan rules: attention on several axes has the keys of its heads", "[plan]") {
  for (const Mesh& mesh : {Mesh{1, {4}}, Mesh{2, {2, 2}}, Mesh{2, {4, 2}}, kMeshes[0], kMeshes[1], kMeshes[2]})
    for (const int64_t groups : {1, 2}) {
      int tried = 0;
      INFO(mesh.num_axes << " axes, the first one of " << mesh.shape[0] << ", " << groups << " groups");
      CHECK(wrong_attentions(mesh, 8, groups, tried) == std::vector<std::string>());
      CHECK(tried >= mesh.num_axes);
    }
}

TEST_CASE("plan rules: heads of queries are cut inside of heads, and none are exchanged for lengths", "[plan]") {
  Graph graph = attention_graph(Mesh{2, {2, 2}}, {2, 8, 8, 4}, {2, 8, 2, 4});
  ReshardTables paths(graph.mesh);
  generate_calibrated_strategies(graph, {}, paths);
  std::vector<std::string> with_both;
  for (const Strategy& strategy : graph.nodes[3].strategies) {
    const bool has_queries = strategy.name.find("heads of queries") != std::string::npos;
    CHECK_FALSE((has_queries && strategy.name.find("exchanged") != std::string::npos));
    if (has_queries && strategy.name.find(" heads,") != std::string::npos) with_both.push_back(strategy.name);
  }
  CHECK(with_both == std::vector<std::string>{"S0 heads, S1 heads of queries"});
}

namespace {

Tensor softmax(const Tensors& operands, const PlanShape& shape) {
  Tensor x = operands[0], y(shape);
  const int64_t columns = shape.back();
  for (size_t row = 0; row < y.data.size(); row += static_cast<size_t>(columns)) {
    double sum = 0;
    for (size_t i = row; i < row + static_cast<size_t>(columns); ++i) sum += std::exp(x.data[i]);
    for (size_t i = row; i < row + static_cast<size_t>(columns); ++i) y.data[i] = std::exp(x.data[i]) / sum;
  }
  return y;
}

Tensor view(const Tensors& operands, const PlanShape& shape) {
  Tensor y(shape);
  REQUIRE(y.data.size() == operands[0].data.size());
  y.data = operands[0].data;
  return y;
}

/// Swaps the last two dimensions.
Tensor transposed(const Tensors& operands, const PlanShape& shape) {
  Tensor x = operands[0], y(shape);
  x.each([&](const PlanShape& at) { y({at[0], at[2], at[1]}) = x(at); });
  return y;
}

}  // namespace

TEST_CASE("plan rules: softmax, and operators that only move elements", "[plan]") {
  struct One {
    const char* target;
    PlanShape from, to;
    Forward forward;
  };
  for (const Mesh& mesh : kMeshes)
    for (const One& one : {One{"softmax", {3, 6, 5}, {3, 6, 5}, softmax}, One{"view", {6, 4, 12}, {6, 4, 6, 2}, view},
                           One{"view", {6, 4, 12}, {24, 12}, view}, One{"view", {1, 8, 5}, {8, 5, 1}, view},
                           One{"transpose", {3, 4, 6}, {3, 6, 4}, transposed}}) {
      GraphMaker maker(mesh, "f32", 4);
      const int y = maker.function("y", one.target, {maker.placeholder("x", one.from)}, one.to);
      Graph graph = maker.output(y);
      graph.nodes[static_cast<size_t>(y)].arguments = {"x", "-1", "-2"};  // transpose reads the numbers
      int tried = 0;
      const auto wrong = wrong_strategies(
          graph, y, one.forward,
          [&](const Tensors& of, const Tensor& dy) { return gradients_by_differences(one.forward, of, dy); }, tried);
      INFO(one.target << " on " << mesh.num_axes << " axes");
      CHECK(wrong == std::vector<std::string>());
      CHECK(tried >= 2);
    }
}

}  // namespace seqtile::testing
