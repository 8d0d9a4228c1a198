// tests/planner/operator_rules_test.cpp -- strategies of the dispatcher's operators, done with numbers
// (rule_harness.h), and the list of known operators.
// SPDX-License-Identifier: Apache-2.0
#include "planner/compat/compat_problem.h"
#include "planner/compat/compat_strategies.h"
#include "tests/planner/rule_harness.h"

namespace seqtile::testing {
namespace {

using Arguments = std::vector<std::string>;

/// An operator of f32 inputs "x0", "x1", ..., and its computation.
struct Operator {
  const char* target;
  std::vector<PlanShape> inputs;
  PlanShape result;
  Arguments arguments;
  Forward forward;
  int least = 2;  ///< fewest strategies to try on one axis
  /// Number of an input that is added to the columns of the result, or -1. One device adds it to partial sums; every
  /// device has its gradient.
  int bias = -1;
};

Graph graph_of(const Operator& op, const Mesh& mesh) {
  GraphMaker maker(mesh, "f32", 4);
  std::vector<int> inputs;
  for (size_t i = 0; i < op.inputs.size(); ++i)
    inputs.push_back(maker.placeholder("x" + std::to_string(i), op.inputs[i]));
  const int y = maker.function("y", std::string("aten.") + op.target, inputs, op.result);
  Graph graph = maker.output(y);
  graph.nodes[static_cast<size_t>(y)].arguments = op.arguments;
  return graph;
}

Tensors gradients_of(const Operator& op, const Tensors& operands, const Tensor& given) {
  Tensors gradients = gradients_by_differences(op.forward, operands, given);
  if (op.bias < 0) return gradients;
  Tensor dy = given, &of_bias = gradients[static_cast<size_t>(op.bias)];
  of_bias.data.assign(of_bias.data.size(), 0);
  dy.each([&](const PlanShape& at) { of_bias({at[1]}) += dy(at); });
  return gradients;
}

void check_with_numbers(const Operator& op) {
  for (const Mesh& mesh : kMeshes) {
    INFO(op.target << " on " << mesh.num_axes << " axes");
    int tried = 0;
    const auto wrong = wrong_strategies(
        graph_of(op, mesh), static_cast<int>(op.inputs.size()), op.forward,
        [&](const Tensors& of, const Tensor& dy) { return gradients_of(op, of, dy); }, tried);
    CHECK(wrong == std::vector<std::string>());
    CHECK(tried >= op.least);
  }
}

/// Each element of the result is the first input's element at `from(place)`.
Forward moved(std::function<PlanShape(const PlanShape&)> from) {
  return [from](const Tensors& of, const PlanShape& shape) {
    Tensor x = of[0], y(shape);
    y.each([&](const PlanShape& at) { y(at) = x(from(at)); });
    return y;
  };
}

/// y[i, n] = bias[n] + sum over k of x[i, k] w[k, n]. One device adds the bias if k is cut.
Tensor addmm(const Tensors& of, const PlanShape& shape) {
  Tensor bias = of[0], x = of[1], w = of[2], y(shape);
  y.each([&](const PlanShape& at) {
    if (x.first[1] == 0) y(at) = bias({at[1]});
    for (int64_t k = 0; k < x.shape[1]; ++k) y(at) += x({at[0], k}) * w({k, at[1]});
  });
  return y;
}

/// y[b, i] = sum over j and k of a[b, i, j] c[b, j, k].
Tensor contracted(const Tensors& of, const PlanShape& shape) {
  Tensor a = of[0], c = of[1], y(shape);
  y.each([&](const PlanShape& at) {
    for (int64_t j = 0; j < a.shape[2]; ++j)
      for (int64_t k = 0; k < c.shape[2]; ++k) y(at) += a({at[0], at[1], j}) * c({at[0], j, k});
  });
  return y;
}

/// A convolution of one place, in groups: y[b, n, p] = bias[n] + sum over c of x[b, c, p] w[n, c, 0].
Tensor conv(const Tensors& of, const PlanShape& shape) {
  Tensor x = of[0], w = of[1], bias = of[2], y(shape);
  const int64_t of_group = w.shape[1], groups = x.shape[1] / of_group, columns = shape[1] / groups;
  y.each([&](const PlanShape& at) {
    if (x.first[1] == 0 || groups > 1) y(at) = bias({at[1]});
    const int64_t first = at[1] / columns * of_group;
    for (int64_t c = 0; c < of_group; ++c) y(at) += x({at[0], first + c, at[2]}) * w({at[1], c, 0});
  });
  return y;
}

/// y[b, n, p] = sum over c of x[b, c, p] w[c, n, 0].
Tensor conv_transposed(const Tensors& of, const PlanShape& shape) {
  Tensor x = of[0], w = of[1], y(shape);
  y.each([&](const PlanShape& at) {
    for (int64_t c = 0; c < x.shape[1]; ++c) y(at) += x({at[0], c, at[2]}) * w({c, at[1], 0});
  });
  return y;
}

/// x[..., n] divided by its row's norm, times w[n], plus b[n].
Tensor row_norm(const Tensors& of, const PlanShape& shape) {
  Tensor x = of[0], w = of[1], b = of[2], y(shape);
  y.each([&](const PlanShape& at) {
    double sum = 1e-3;
    for (int64_t i = 0; i < shape[2]; ++i) sum += x({at[0], at[1], i}) * x({at[0], at[1], i});
    y(at) = x(at) / std::sqrt(sum) * w({at[2]}) + b({at[2]});
  });
  return y;
}

/// Attention of heads with one element and an added mask: q[b, h, l, 1], mask[h, l, keys].
Tensor masked_attention(const Tensors& of, const PlanShape& shape) {
  Tensor q = of[0], k = of[1], v = of[2], mask = of[3], y(shape);
  y.each([&](const PlanShape& at) {
    double sum = 0;
    for (int64_t j = 0; j < k.shape[2]; ++j) {
      // A device that has keys of other heads has the keys of all heads.
      const int64_t head = k.shape[1] == q.shape[1] ? at[1] : q.first[1] + at[1];
      const double weight = std::exp(q(at) * k({at[0], head, j, 0}) + mask({at[1], at[2], j}));
      sum += weight, y(at) += weight * v({at[0], head, j, 0});
    }
    y(at) /= sum;
  });
  return y;
}

/// Two experts with three rows each: y[r, n] = sum over k of x[r, k] w[expert of r, k, n].
Tensor experts(const Tensors& of, const PlanShape& shape) {
  Tensor x = of[0], w = of[1], y(shape);
  y.each([&](const PlanShape& at) {
    const int64_t expert = at[0] / 3 - w.first[0];
    if (expert < 0 || expert >= w.shape[0]) return;
    for (int64_t k = 0; k < x.shape[1]; ++k) y(at) += x({at[0], k}) * w({expert, k, at[1]});
  });
  return y;
}

Tensor summed(const Tensors& of, const PlanShape& shape) {
  Tensor x = of[0], y(shape);
  x.each([&](const PlanShape& at) { y({at[0], at[2]}) += x(at); });
  return y;
}

Tensor cumulated(const Tensors& of, const PlanShape& shape) {
  Tensor x = of[0], y(shape);
  y.each([&](const PlanShape& at) {
    for (int64_t i = 0; i <= at[1]; ++i) y(at) += x({at[0], i, at[2]});
  });
  return y;
}

/// joined() puts two inputs side by side along dimension 1; stacked() puts inputs at their places along a new one.
Tensor joined(const Tensors& of, const PlanShape& shape) {
  Tensor y(shape), a = of[0], b = of[1];
  y.each([&](const PlanShape& at) {
    const int64_t first = a.shape[1];
    y(at) = at[1] < first ? a(at) : b({at[0], at[1] - first, at[2]});
  });
  return y;
}
Tensor stacked(const Tensors& of, const PlanShape& shape) {
  Tensor y(shape);
  y.each([&](const PlanShape& at) { y(at) = Tensor(of[static_cast<size_t>(at[1])])({at[0], at[2]}); });
  return y;
}

}  // namespace

TEST_CASE("plan rules: sums, parts and copies of tensors have the parts that they say", "[plan]") {
  for (const Operator& op :
       std::vector<Operator>{{"sum", {{5, 6, 8}}, {5, 8}, {"x0", "1", "dim=1"}, summed, 4},
                             {"cumsum", {{5, 6, 8}}, {5, 6, 8}, {"x0", "1", "dim=1"}, cumulated, 3},
                             {"cat", {{5, 6, 8}, {5, 2, 8}}, {5, 8, 8}, {"x0", "x1", "1", "dim=1"}, joined, 3},
                             {"stack", {{5, 8}, {5, 8}}, {5, 2, 8}, {"x0", "x1", "1", "dim=1"}, stacked, 3},
                             {"select",
                              {{5, 6, 8}},
                              {5, 8},
                              {"x0", "1", "3", "dim=1"},
                              moved([](const PlanShape& at) {
                                return PlanShape{at[0], 3, at[1]};
                              }),
                              3},
                             {"slice",
                              {{5, 6, 8}},
                              {5, 3, 8},
                              {"x0", "1", "0", "3", "dim=1"},
                              moved([](const PlanShape& at) { return at; }),
                              3},
                             {"expand",
                              {{5, 1, 8}},
                              {5, 6, 8},
                              {"x0", "-1", "6", "-1"},
                              moved([](const PlanShape& at) {
                                return PlanShape{at[0], 0, at[2]};
                              }),
                              4},
                             {"flip",
                              {{5, 6, 8}},
                              {5, 6, 8},
                              {"x0", "1", "dim=1"},
                              moved([](const PlanShape& at) {
                                return PlanShape{at[0], 5 - at[1], at[2]};
                              }),
                              3}})
    check_with_numbers(op);
}

TEST_CASE("plan rules: products with biases, groups and experts have the parts that they say", "[plan]") {
  for (const Operator& op :
       std::vector<Operator>{{"addmm", {{6}, {8, 12}, {12, 6}}, {8, 6}, {"x0", "x1", "x2"}, addmm, 4, 0},
                             {"einsum", {{4, 6, 8}, {4, 8, 5}}, {4, 6}, {"bij,bjk->bi", "x0", "x1"}, contracted, 4},
                             {"conv1d", {{5, 6, 2}, {8, 6, 1}, {8}}, {5, 8, 2}, {}, conv, 4, 2},
                             {"conv1d", {{5, 12, 2}, {24, 1, 1}, {24}}, {5, 24, 2}, {}, conv, 3, 2},
                             {"conv_transpose1d", {{5, 6, 2}, {6, 8, 1}}, {5, 8, 2}, {}, conv_transposed, 4},
                             {"grouped_mm", {{6, 8}, {2, 8, 5}, {2}}, {6, 5}, {}, experts, 3}})
    check_with_numbers(op);
}

TEST_CASE("plan rules: norms with weights as inputs and attention with a mask have the parts that they say", "[plan]") {
  check_with_numbers({"layer_norm", {{5, 6, 8}, {8}, {8}}, {5, 6, 8}, {"x0", "8", "x1", "x2"}, row_norm, 3});
  check_with_numbers({"scaled_dot_product_attention",
                      {{2, 4, 3, 1}, {2, 4, 3, 1}, {2, 4, 3, 1}, {4, 3, 3}},
                      {2, 4, 3, 1},
                      {"x0", "x1", "x2", "x3"},
                      masked_attention,
                      2});
}

TEST_CASE("plan rules: what the arguments do not say is not guessed", "[plan]") {
  for (const Operator& op : std::vector<Operator>{{"sum", {{6, 6, 6}}, {6, 6}, {"x0"}, {}},
                                                  {"cumsum", {{6, 6}}, {6, 6}, {"x0"}, {}},
                                                  {"stack", {{6, 6}, {6, 6}}, {6, 2, 6}, {"x0", "x1"}, {}},
                                                  {"select", {{6, 6}}, {6}, {"x0"}, {}},
                                                  {"einsum", {{4, 6}, {6, 5}}, {4, 5}, {"ab,bc", "x0", "x1"}, {}},
                                                  {"einsum", {{4, 4}, {4, 5}}, {4, 5}, {"aa,ab->ab", "x0", "x1"}, {}},
                                                  {"conv1d", {{5, 6, 2}, {8, 4, 1}, {8}}, {5, 8, 2}, {}, {}},
                                                  {"index", {{6, 6}}, {6, 6}, {"x0", "None"}, {}}}) {
    INFO(op.target);
    const Planned planned = make_plan(graph_of(op, kMeshes[0]), {});
    CHECK(planned.strategies.unknown.text() == std::string(op.target) + " (node y)");
  }
}

TEST_CASE("plan rules: rows that indices choose are cut as the indices, other dimensions as the tensor", "[plan]") {
  const Operator op{"index", {{6, 10, 8}, {4, 2}}, {6, 4, 2, 8}, {"x0", "None", "x1"}, {}};
  const Planned planned = make_plan(graph_of(op, Mesh{1, {2}, {1e-6}, {1e-9}}), {});
  CHECK(planned.strategies.unknown.empty());
  const auto& ways = planned.graph.nodes[2].strategies;
  REQUIRE(ways.size() == 5);  // whole, and one way for each dimension of the result
  const auto found = std::ranges::find(ways, "S0 dim 1", &Strategy::name);
  REQUIRE(found != ways.end());
  CHECK(found->operands[1][0] == Layout().with(0, 1));
  CHECK(found->operands[0][0] == Layout().with_partial(1));  // the gradient is a partial sum
  CHECK(std::ranges::count(ways, Layout().with(3, 1), [](const Strategy& way) { return way.results[0]; }) == 1);
}

TEST_CASE("plan: operators beyond the known planner's have ways at its prices", "[plan]") {
  const Mesh mesh{2, {2, 2}, {1, 1}, {1, 1}};
  for (const Operator& op : std::vector<Operator>{
           {"layer_norm", {{8, 16, 32}, {32}, {32}}, {8, 16, 32}, {"x0", "32", "x1", "x2"}, {}},
           {"scaled_dot_product_attention", std::vector<PlanShape>(3, {8, 4, 16, 8}), {8, 4, 16, 8}, {}, {}},
           {"sum", {{8, 16, 32}}, {8, 32}, {"x0", "1", "dim=1"}, {}},
           {"conv2d", {{8, 4, 8, 8}, {8, 4, 3, 3}}, {8, 8, 8, 8}, {}, {}}}) {
    INFO(op.target);
    Graph graph = graph_of(op, mesh);
    CHECK(generate_compat_strategies(graph).empty());
    const auto& ways = graph.nodes[op.inputs.size()].strategies;
    CHECK(ways.size() > 4);
    for (const Strategy& way : ways) {
      CHECK(way.results[0].partial() == 0);
      for (const auto& operand : way.operands) CHECK(operand[0].partial() == 0);
    }
    CHECK(solve(compat_problem(graph)).is_exact());
  }
}

}  // namespace seqtile::testing
