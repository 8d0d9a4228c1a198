// kernels/seqpar/patterns/matmul_backward_shape.h -- what the parts of both operations share: sizes, configurations,
// products.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <vector>

#include "kernels/seqpar/exchange/reduction.h"
#include "kernels/seqpar/patterns/allgather_linear.h"
#include "seqtile/ops/linear.h"
#include "seqtile/seqpar.h"

namespace seqtile::kernels::seqpar::matmul_backward_op {

struct Shape {
  std::string_view operation;
  bool is_trailing;
  Ranks ranks;
  std::vector<int64_t> n;  ///< of the weights [n, k]
  int64_t k;
  bool accumulate;
  DType dtype, dw_dtype, transport;

  int64_t depth() const;  ///< of the sums of the gradient of the layer's input, over all weights
  /// The product of the gradient and one weight; and of all of them, as one.
  Linear dgrad(size_t weight) const { return dgrad_of(n[weight]); }
  Linear dgrad() const { return dgrad_of(depth()); }
  LinearWgrad wgrad(int64_t rows) const {
    return {.n = rows, .k = k, .accumulate = accumulate, .f32_gradient = dw_dtype == DType::f32, .dtype = dtype};
  }
  std::vector<LinearWgrad> gradients() const;

 private:
  Linear dgrad_of(int64_t rows) const {
    return {.n = k, .k = rows, .weight_layout = WeightLayout::transposed, .dtype = dtype};
  }
};

/// The tensors of both operations: views of a kernel, or arguments of a call.
template <class T>
struct Tensors {
  T cut;                  ///< [own rows, columns], which the exchange's phase 0 gathers: dz, or x
  std::vector<T> whole;   ///< [length, columns]: u, or the dy of each weight
  std::vector<T> w;       ///< of each weight, as are the next two
  std::vector<T> before;  ///< empty without `accumulate`
  std::vector<T> dw;
  T dgrad;  ///< du, or dx
};

/// A configuration has the parameters of the wgrad tile with a prefix; on GPUs both tiles have the same warps and
/// stages.
struct Schedule {
  static Schedule from(const autotune::Config& config);
  linear_op::Tile dgrad, wgrad;
  GatherSchedule gather;  ///< the order of tiles of the trailing operation
  ReduceSchedule sums;    ///< of the leading operation
};

ExchangeShape exchange_of(const Shape& shape, int64_t identity, int64_t chunk_rows);
/// The partial sums of dx, which the leading operation has.
PartialShape partials_of(const Shape& shape, const linear_op::Tile& dgrad);

void build(KernelBuilder& b, const Shape& shape, const Schedule& schedule, const Tensors<Var>& views, int64_t identity);
autotune::SizeExpr num_programs(const Shape& shape, const Schedule& schedule);

/// The default first.
std::vector<autotune::Config> configs(const Shape& shape, int threads, int64_t length, const Target& target);
double predict_us(const Shape& shape, const autotune::Config& config, int threads, int64_t length,
                  const Target& target);

/// Operands by which the sums of both gradients are of order 1.
bool fill(const autotune::Problem& p, const Shape& shape, size_t arg, uint64_t seed);
/// Rows `rows` of du or dx, then of the gradient of each weight.
std::vector<std::vector<double>> reference(const autotune::Problem& p, const Shape& shape, const Tensors<Tensor>& t,
                                           std::span<const int64_t> rows);

}  // namespace seqtile::kernels::seqpar::matmul_backward_op
