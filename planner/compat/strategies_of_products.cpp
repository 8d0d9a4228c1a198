// planner/compat/strategies_of_products.cpp -- the known planner's strategies of convolutions and matrix products.
// SPDX-License-Identifier: Apache-2.0
//
// Every axis cuts the rows of the result (m), its columns (n), the sum (k), or nothing. Cutting the sum makes partial
// results, which an all-reduce sums. An operand that several devices share has its gradient summed over these devices.
#include <algorithm>
#include <array>
#include <numeric>

#include "planner/compat/strategy_list.h"

namespace seqtile::planner {
namespace {

struct ProductCut {
  AxisSet m = 0, n = 0, k = 0;
  AxisSet all() const { return m | n | k; }
};

using Cuts = std::vector<ProductCut>;

/// Cuts of a convolution, in the known planner's order.
constexpr std::array<ProductCut, 16> kConvCuts{{{1, 2, 0},
                                                {2, 1, 0},
                                                {1, 0, 0},
                                                {2, 0, 0},
                                                {1, 0, 2},
                                                {2, 0, 1},
                                                {0, 2, 1},
                                                {0, 1, 2},
                                                {0, 0, 1},
                                                {0, 0, 2},
                                                {0, 1, 0},
                                                {0, 2, 0},
                                                {0, 0, 0},
                                                {3, 0, 0},
                                                {0, 0, 3},
                                                {0, 3, 0}}};
constexpr std::array<ProductCut, 14> kLinearCuts{{{3, 0, 0},
                                                  {0, 0, 3},
                                                  {0, 3, 0},
                                                  {0, 2, 1},
                                                  {0, 1, 2},
                                                  {0, 0, 1},
                                                  {0, 0, 2},
                                                  {0, 1, 0},
                                                  {0, 2, 0},
                                                  {1, 2, 0},
                                                  {2, 1, 0},
                                                  {1, 0, 2},
                                                  {2, 0, 1},
                                                  {0, 0, 0}}};

Cuts cuts_of(const Mesh& mesh, std::span<const ProductCut> of_two_axes) {
  if (mesh.num_axes == 2) return {of_two_axes.begin(), of_two_axes.end()};
  Cuts cuts{{}};
  for (int axis = 0; axis < mesh.num_axes; ++axis) {
    const size_t count = cuts.size();
    for (AxisSet ProductCut::*side : {&ProductCut::m, &ProductCut::n, &ProductCut::k})
      for (size_t i = 0; i < count; ++i) {
        ProductCut cut = cuts[i];
        cut.*side |= 1u << axis;
        cuts.push_back(cut);
      }
  }
  return cuts;
}

/// The cut's name, "S0S1 = S0R x RS1", for y[m, n] = x[m, k] w[k, n].
std::string product_name(const ProductCut& cut) {
  const std::string m = axes_name(cut.m), n = axes_name(cut.n), k = axes_name(cut.k);
  return m + n + " = " + m + k + " x " + k + n;
}

/// The cost of a product. `products` counts the multiplies of the whole operator; x, w and y are elements of one
/// device.
StrategyCost product_cost(const Mesh& mesh, const ProductCut& cut, double products, double x, double w, double y) {
  StrategyCost cost;
  const double forward = products / mesh.devices(cut.all());
  cost.compute = forward + 2 * forward;
  cost.communication =
      compat_all_reduce(mesh, cut.k, y) + (compat_all_reduce(mesh, cut.n, x) + compat_all_reduce(mesh, cut.m, w));
  cost.memory = (2 * x + w + y + 2 * w) * kCompatBytes;  // with gradients; the weight counts once more as a parameter
  return cost;
}

double elements(const Shape& shape) {
  return std::accumulate(shape.begin(), shape.end(), 1.0,
                         [](double product, int64_t size) { return product * static_cast<double>(size); });
}

}  // namespace

/// x[batch, channels, ...], weight[columns, channels, ...]. m is the batch, k the channels.
bool add_conv(StrategyList& list) {
  const Shape* parameter = list.parameter("weight");
  if (!list.has_inputs(1) || !parameter) return false;
  const Shape &weight = *parameter, &input = list.input_shape(0), &shape = list.shape();
  if (weight.size() < 3 || input.size() != weight.size() || shape.size() != weight.size()) return false;
  // A grouped convolution has other channel counts and is refused here.
  if (weight[1] != input[1] || weight[0] != shape[1] || input[0] != shape[0]) return false;
  double products = elements(shape);
  for (size_t dim = 1; dim < weight.size(); ++dim) products *= static_cast<double>(weight[dim]);
  for (const ProductCut& cut : cuts_of(list.mesh(), kConvCuts)) {
    const Layout x = Layout().with(0, cut.m).with(1, cut.k), w = Layout().with(0, cut.n).with(1, cut.k),
                 y = Layout().with(0, cut.m).with(1, cut.n);
    if (!list.fits(weight, w)) continue;
    list.add(
        product_name(cut), {x}, y,
        product_cost(list.mesh(), cut, products, list.local(input, x), list.local(weight, w), list.local(shape, y)));
  }
  return true;
}

/// x[..., k], weight[n, k] and optionally bias[n]. Weight and bias are inputs or parameters. m may cut any of x's
/// leading dimensions.
bool add_linear(StrategyList& list) {
  const bool is_input = list.has_inputs(2) || list.has_inputs(3);
  if (!is_input && !(list.has_inputs(1) && list.parameter("weight"))) return false;
  const Shape &weight = is_input ? list.input_shape(1) : *list.parameter("weight"), &input = list.input_shape(0),
              &shape = list.shape();
  if (weight.size() != 2 || input.empty() || input.size() != shape.size()) return false;
  if (input.back() != weight[1] || shape.back() != weight[0] ||
      !std::equal(input.begin(), input.end() - 1, shape.begin()))
    return false;
  const int last = static_cast<int>(shape.size()) - 1;
  const double products = elements(shape) * static_cast<double>(weight[1]);
  for (const ProductCut& cut : cuts_of(list.mesh(), kLinearCuts))
    for (int row = 0; row < (cut.m ? last : 1); ++row) {
      const Layout rows = Layout().with(row, cut.m), w = Layout().with(0, cut.n).with(1, cut.k);
      const Layout x = rows.with(last, cut.k), y = rows.with(last, cut.n);
      if (!list.fits(weight, w)) continue;
      list.add(
          product_name(cut) + (cut.m ? "_" + std::to_string(row) : ""), {x, w, Layout().with(0, cut.n)}, y,
          product_cost(list.mesh(), cut, products, list.local(input, x), list.local(weight, w), list.local(shape, y)));
    }
  return true;
}

namespace {

/// The axes that cut the batch b, i, j and k of batched products a[b, i, k] and b[b, k, j].
struct BatchCut {
  const char* name;
  AxisSet b, i = 0, j = 0, k = 0;
};

constexpr std::array<BatchCut, 7> kBatchCuts{{{"Sb0Si1 = Sb0Si1 x Sb0", 1, 2, 0, 0},
                                              {"Sb1Si0 = Sb1Si0 x Sb1", 2, 1, 0, 0},
                                              {"Sb0Sj1 = Sb0R x Sb0Sj1", 1, 0, 2, 0},
                                              {"Sb1Sj0 = Sb1R x Sb1Sj0", 2, 0, 1, 0},
                                              {"Sb0R = Sb0Sk1 x Sb0Sk1", 1, 0, 0, 2},
                                              {"Sb1R = Sb1Sk0 x Sb1Sk0", 2, 0, 0, 1},
                                              {"Sb01 = Sb01 x Sb01", 3, 0, 0, 0}}};

}  // namespace

/// Two inputs of the same rank. The last batch dimension is cut; a mesh with a number of axes other than two cuts it by
/// all axes. The product stays whole where nothing can be cut.
bool add_matmul(StrategyList& list) {
  if (!list.has_inputs(2)) return false;
  const Shape &left = list.input_shape(0), &right = list.input_shape(1);
  const int rank = static_cast<int>(left.size()), batch = rank - 3;  // the last batch dimension
  if (rank < 2 || right.size() != left.size() || list.shape().size() != left.size()) return false;
  if (left.back() != right[right.size() - 2]) return false;
  std::vector<BatchCut> cuts(kBatchCuts.begin(), kBatchCuts.end());
  if (list.mesh().num_axes != 2) cuts = {{"Sb = Sb x Sb", list.mesh().all()}};
  if (batch < 0) cuts = {};
  const double products = elements(list.shape()) * static_cast<double>(left.back());
  for (const BatchCut& cut : cuts) {
    const Layout shared = Layout().with(batch, cut.b);
    const Layout a = shared.with(rank - 2, cut.i).with(rank - 1, cut.k),
                 b = shared.with(rank - 2, cut.k).with(rank - 1, cut.j),
                 y = shared.with(rank - 2, cut.i).with(rank - 1, cut.j);
    const double of_a = list.local(left, a), of_b = list.local(right, b), of_y = list.local(list.shape(), y);
    const double forward = products / list.mesh().devices(cut.b | cut.i | cut.j | cut.k);
    StrategyCost cost{3 * forward, compat_all_reduce(list.mesh(), cut.k, of_y), (of_a + of_b + of_y) * kCompatBytes};
    cost.communication += compat_all_reduce(list.mesh(), cut.j, of_a) + compat_all_reduce(list.mesh(), cut.i, of_b);
    list.add(std::string(cut.name) + "_" + std::to_string(batch), {a, b}, y, cost);
  }
  if (!list.node().strategies.empty()) return true;
  const double whole = (elements(left) + elements(right) + elements(list.shape())) * kCompatBytes;
  list.add("RR = RR x RR", {}, {}, {3 * products, 0, whole});
  return true;
}

}  // namespace seqtile::planner
