// tests/autotune/plan/rules_test.cpp -- what strategies say, done with numbers: every device computes with its parts.
// SPDX-License-Identifier: Apache-2.0
//
// Operands are cut as a strategy wants them, each device computes with its parts alone, forward and backward, and what
// the devices have is put together as the strategy says: parts side by side, partial sums added, copies compared.
#include <catch2/catch.hpp>

#include <cmath>
#include <functional>
#include <numeric>
#include <random>

#include "autotune/plan/local_shape.h"
#include "tests/autotune/plan/graph_maker.h"
#include "tests/autotune/plan/planned.h"

namespace seqtile::testing {
namespace {

using namespace plan;

struct Tensor {
  PlanShape shape;
  std::vector<double> data;
  PlanShape first;  ///< of a part: where it begins in the whole tensor

  explicit Tensor(PlanShape given = {}) : shape(std::move(given)), first(shape.size()) {
    data.resize(static_cast<size_t>(std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies())));
  }
  double& operator()(const PlanShape& at) {
    int64_t place = 0;
    for (size_t dim = 0; dim < shape.size(); ++dim) place = place * shape[dim] + at[dim];
    return data[static_cast<size_t>(place)];
  }
  void each(const std::function<void(const PlanShape&)>& f) const {
    PlanShape at(shape.size());
    for (size_t i = 0; i < data.size(); ++i) {
      f(at);
      for (size_t dim = shape.size(); dim-- > 0 && ++at[dim] == shape[dim];) at[dim] = 0;
    }
  }
};

using Tensors = std::vector<Tensor>;
/// A device's place along each axis.
using Place = std::array<int, kMaxAxes>;

std::vector<Place> places(const Mesh& mesh) {
  std::vector<Place> result{{}};
  for (int axis = 0; axis < mesh.num_axes; ++axis) {
    const size_t count = result.size();
    for (int at = 1; at < mesh.shape[static_cast<size_t>(axis)]; ++at)
      for (size_t i = 0; i < count; ++i) {
        result.push_back(result[i]);
        result.back()[static_cast<size_t>(axis)] = at;
      }
  }
  return result;
}

/// First and end of what a device has of a dimension: the lowest axis cuts it, the next one these parts.
std::pair<int64_t, int64_t> range(const Mesh& mesh, const Place& place, int64_t size, AxisSet axes) {
  int64_t begin = 0, end = size, largest = size;
  for (size_t axis = 0; axis < static_cast<size_t>(mesh.num_axes); ++axis) {
    if (!(axes >> axis & 1)) continue;
    largest = local_size(largest, mesh.shape[axis]);
    begin = std::min(end, begin + place[axis] * largest), end = std::min(end, begin + largest);
  }
  return {begin, end};
}

Tensor part_of(Tensor whole, const Mesh& mesh, const Place& place, Layout layout) {
  PlanShape shape, first;
  for (size_t dim = 0; dim < whole.shape.size(); ++dim) {
    const auto [begin, end] = range(mesh, place, whole.shape[dim], layout.axes_of(static_cast<int>(dim)));
    first.push_back(begin), shape.push_back(end - begin);
  }
  Tensor part(shape);
  part.first = first;
  part.each([&](const PlanShape& at) {
    PlanShape from = at;
    for (size_t dim = 0; dim < from.size(); ++dim) from[dim] += first[dim];
    part(at) = whole(from);
  });
  return part;
}

/// Whether the parts of all devices are `whole`: of axes with copies each one has it.
bool is_assembled(Tensor whole, const std::vector<Tensor>& parts, const Mesh& mesh, Layout layout) {
  const std::vector<Place> all = places(mesh);
  for (size_t device = 0; device < all.size(); ++device) {
    const Tensor wanted = part_of(whole, mesh, all[device], layout);
    std::vector<double> sum(wanted.data.size());
    for (size_t other = 0; other < all.size(); ++other) {  // those beside it along the axes of partial sums
      bool is_beside = true;
      for (int axis = 0; axis < mesh.num_axes; ++axis)
        if (const auto a = static_cast<size_t>(axis); !(layout.partial() >> axis & 1))
          is_beside = is_beside && all[other][a] == all[device][a];
      if (!is_beside) continue;
      if (parts[other].data.size() != sum.size()) return false;
      for (size_t i = 0; i < sum.size(); ++i) sum[i] += parts[other].data[i];
    }
    for (size_t i = 0; i < sum.size(); ++i)
      if (!(std::abs(sum[i] - wanted.data[i]) <= 1e-9)) return false;
  }
  return true;
}

/// A result of this shape, of operands.
using Forward = std::function<Tensor(const Tensors&, const PlanShape&)>;
/// Gradients of the operands, of the operands and the result's gradient.
using Backward = std::function<Tensors(const Tensors&, const Tensor&)>;

Tensor random_tensor(const PlanShape& shape, std::mt19937& random) {
  Tensor tensor(shape);
  for (double& value : tensor.data) value = static_cast<double>(random() % 1000) / 500 - 1;
  return tensor;
}

/// Strategies of the graph's node whose parts do not make up the whole; `tried` counts all but fused ones.
std::vector<std::string> wrong_strategies(Graph graph, int node, const Forward& forward, const Backward& backward,
                                          int& tried) {
  ReshardTables paths(graph.mesh);
  generate_calibrated_strategies(graph, {}, paths);
  const Node& op = graph.nodes[static_cast<size_t>(node)];
  std::mt19937 random(7);
  Tensors operands;
  for (const int input : op.inputs)
    operands.push_back(random_tensor(graph.nodes[static_cast<size_t>(input)].results[0].shape, random));
  const Tensor result = forward(operands, op.results[0].shape), gradient = random_tensor(result.shape, random);
  const Tensors gradients = backward(operands, gradient);
  std::vector<std::string> wrong;
  for (const Strategy& strategy : op.strategies) {
    if (is_fused(strategy)) continue;
    ++tried;
    const Layout left = strategy.results[0];
    std::vector<Tensor> results;
    std::vector<std::vector<Tensor>> gradient_parts(operands.size());
    for (const Place& place : places(graph.mesh)) {
      Tensors parts;
      for (size_t i = 0; i < operands.size(); ++i)
        parts.push_back(part_of(operands[i], graph.mesh, place, strategy.operands[i][0].with_partial(0)));
      const Tensor of_gradient = part_of(gradient, graph.mesh, place, left.with_partial(0));
      results.push_back(forward(parts, of_gradient.shape));
      const Tensors found = backward(parts, of_gradient);
      for (size_t i = 0; i < found.size(); ++i) gradient_parts[i].push_back(found[i]);
    }
    bool is_right = is_assembled(result, results, graph.mesh, left);
    for (size_t i = 0; i < operands.size(); ++i)
      is_right = is_right && is_assembled(gradients[i], gradient_parts[i], graph.mesh, strategy.operands[i][0]);
    if (!is_right) wrong.push_back(strategy.name);
  }
  return wrong;
}

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

const Mesh kMeshes[] = {{1, {3}}, {2, {2, 3}}, {3, {2, 2, 2}}};

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

/// Without the maximum: scores are small. A head of the whole uses its group's keys; where a device does not have them
/// the result is no number.
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

/// By differences, of the sum of the result times its gradient.
Tensors gradients_by_differences(const Forward& forward, const Tensors& operands, const Tensor& gradient) {
  constexpr double kStep = 1e-5;
  Tensors result;
  for (size_t i = 0; i < operands.size(); ++i) {
    Tensor of_operand(operands[i].shape);
    for (size_t at = 0; at < of_operand.data.size(); ++at)
      for (const double sign : {1.0, -1.0}) {
        Tensors moved = operands;
        moved[i].data[at] += sign * kStep;
        const Tensor y = forward(moved, gradient.shape);
        for (size_t e = 0; e < y.data.size(); ++e)
          of_operand.data[at] += sign * y.data[e] * gradient.data[e] / (2 * kStep);
      }
    result.push_back(std::move(of_operand));
  }
  return result;
}

}  // namespace

namespace {

Graph attention_graph(const Mesh& mesh, const PlanShape& q, const PlanShape& keys) {
  GraphMaker maker(mesh, "f32", 4);
  const int of_q = maker.placeholder("q", q), k = maker.placeholder("k", keys), v = maker.placeholder("v", keys);
  return maker.output(maker.function("y", "attention", {of_q, k, v}, q));
}

/// Of the graph's node 3. `tried` is how many there are that are not fused.
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

/// The last two dimensions the other way round.
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
      graph.nodes[static_cast<size_t>(y)].arguments = {"x", "-1", "-2"};  // of transpose
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
