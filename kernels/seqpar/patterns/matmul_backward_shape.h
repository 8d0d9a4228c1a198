// kernels/seqpar/patterns/matmul_backward_shape.h -- what the parts of both operations share: sizes, configurations,
// products.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <vector>

#include "kernels/linear/linear_wgrad.h"
#include "kernels/seqpar/exchange/exchange.h"
#include "kernels/seqpar/exchange/reduction.h"
#include "kernels/seqpar/patterns/allgather_linear.h"

namespace seqtile::kernels::seqpar::matmul_backward_op {

struct Shape {
  explicit Shape(const autotune::Workload& w);
  bool is_trailing;
  int world_size;
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

/// Of the wgrad tile a configuration has the parameters with a prefix; on GPUs both tiles have the same warps and
/// stages.
struct Schedule {
  static Schedule from(const autotune::Config& config);
  linear_op::Tile dgrad, wgrad;
  GatherSchedule gather;  ///< the order of tiles of the trailing operation
  ReduceSchedule sums;    ///< of the leading operation
};

ExchangeShape exchange_of(const Shape& shape, int64_t identity, int64_t chunk_rows);
/// Of the leading operation: the partial sums of dx.
PartialShape partials_of(const Shape& shape, const linear_op::Tile& dgrad);

void build_trailing(KernelBuilder& b, const Shape& shape, const Schedule& schedule, int64_t identity);
void build_leading(KernelBuilder& b, const Shape& shape, const Schedule& schedule, int64_t identity);
autotune::SizeExpr num_programs(const Shape& shape, const Schedule& schedule);

autotune::ConfigSpace config_space(const autotune::Workload& w, int64_t length, const Target& target);
autotune::Config default_config(const autotune::Workload& w, int64_t length, const Target& target);
double predict_us(const autotune::Workload& w, const autotune::Config& config, int64_t length, const Target& target);

/// Operands by which the sums of both gradients are of order 1.
bool fill(const autotune::Problem& p, size_t arg, uint64_t seed);
void reference(const autotune::Problem& p, std::span<const int64_t> rows, std::vector<std::vector<double>>& outputs);

}  // namespace seqtile::kernels::seqpar::matmul_backward_op
