// tests/planner/rule_harness.h -- strategies done with numbers: each device computes with its parts.
// SPDX-License-Identifier: Apache-2.0
//
// The harness cuts operands as a strategy wants them. Each device computes with its parts alone, forward and backward.
// The harness joins the devices' results as the strategy says: parts side by side, partial sums added, copies compared.
#pragma once
#include <catch2/catch.hpp>

#include <cmath>
#include <functional>
#include <numeric>
#include <random>

#include "planner/graph/local_shape.h"
#include "tests/planner/graph_maker.h"
#include "tests/planner/planned.h"

namespace seqtile::testing {

using namespace planner;

struct Tensor {
  PlanShape shape;
  std::vector<double> data;
  PlanShape first;  ///< place in the whole tensor where a part begins

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

inline std::vector<Place> places(const Mesh& mesh) {
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

/// First and end of a device's part of a dimension: the lowest axis cuts the dimension, the next one cuts the parts.
inline std::pair<int64_t, int64_t> range(const Mesh& mesh, const Place& place, int64_t size, AxisSet axes) {
  int64_t begin = 0, end = size, largest = size;
  for (size_t axis = 0; axis < static_cast<size_t>(mesh.num_axes); ++axis) {
    if (!(axes >> axis & 1)) continue;
    largest = local_size(largest, mesh.shape[axis]);
    begin = std::min(end, begin + place[axis] * largest), end = std::min(end, begin + largest);
  }
  return {begin, end};
}

inline Tensor part_of(Tensor whole, const Mesh& mesh, const Place& place, Layout layout) {
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

/// True if the parts of all devices make up `whole`. Devices along an axis with copies must all have it.
inline bool is_assembled(Tensor whole, const std::vector<Tensor>& parts, const Mesh& mesh, Layout layout) {
  const std::vector<Place> all = places(mesh);
  for (size_t device = 0; device < all.size(); ++device) {
    const Tensor wanted = part_of(whole, mesh, all[device], layout);
    std::vector<double> sum(wanted.data.size());
    for (size_t other = 0; other < all.size(); ++other) {  // devices beside `device` along the axes of partial sums
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

/// Computes a result of the shape from operands.
using Forward = std::function<Tensor(const Tensors&, const PlanShape&)>;
/// Computes gradients of the operands from the operands and the result's gradient.
using Backward = std::function<Tensors(const Tensors&, const Tensor&)>;

inline Tensor random_tensor(const PlanShape& shape, std::mt19937& random) {
  Tensor tensor(shape);
  for (double& value : tensor.data) value = static_cast<double>(random() % 1000) / 500 - 1;
  return tensor;
}

/// Strategies of the graph's node whose parts do not make up the whole; `tried` counts all but fused ones.
inline std::vector<std::string> wrong_strategies(Graph graph, int node, const Forward& forward,
                                                 const Backward& backward, int& tried) {
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

/// Gradients by finite differences of the sum of result times gradient.
inline Tensors gradients_by_differences(const Forward& forward, const Tensors& operands, const Tensor& gradient) {
  constexpr double kStep = 1e-5;
  Tensors result;
  for (size_t i = 0; i < operands.size(); ++i) {
    Tensor of_operand(operands[i].shape);
    for (size_t at = 0; at < of_operand.data.size(); ++at) {
      Tensors up = operands, down = operands;
      up[i].data[at] += kStep, down[i].data[at] -= kStep;
      const Tensor above = forward(up, gradient.shape), below = forward(down, gradient.shape);
      for (size_t e = 0; e < above.data.size(); ++e)
        of_operand.data[at] += (above.data[e] - below.data[e]) / (2 * kStep) * gradient.data[e];
    }
    result.push_back(std::move(of_operand));
  }
  return result;
}

inline const Mesh kMeshes[] = {{1, {3}}, {2, {2, 3}}, {3, {2, 2, 2}}};

}  // namespace seqtile::testing
