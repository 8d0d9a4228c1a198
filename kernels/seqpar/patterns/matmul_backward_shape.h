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

/// The tensors of both operations: views of a kernel, or arguments of a call. Their declaration visits the object.
template <class T>
struct Tensors : TensorVisitor<Tensors<T>> {
  T cut;                  ///< [own rows, columns], which the exchange's phase 0 gathers: dz, or x
  std::vector<T> whole;   ///< [length, columns]: u, or the dy of each weight
  std::vector<T> w;       ///< of each weight, as are the next two
  std::vector<T> before;  ///< empty without `accumulate`
  std::vector<T> dw;
  T dgrad;  ///< du, or dx

  void visit(autotune::ArgRole, std::string_view name, const T& tensor, Extents, const TensorOptions&) {
    if (name == "dz" || name == "x") cut = tensor;
    else if (name == "du" || name == "dx") dgrad = tensor;
    else if (name.starts_with("w")) w.push_back(tensor);
    else if (name.starts_with("dw")) dw.push_back(tensor);
    else if (name.starts_with("before")) before.push_back(tensor);
    else whole.push_back(tensor);
  }
};

/// A configuration has the parameters of the wgrad tile with a prefix; on GPUs both tiles have the same warps and
/// stages.
struct Schedule {
  static Schedule from(const autotune::Config& config);
  linear_op::Tile dgrad, wgrad;
  GatherSchedule gather;  ///< the order of tiles of the trailing operation
  ReduceSchedule sums;    ///< of the leading operation
};

/// Sizes, and the plans of rank_op.h.
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
  ExchangeShape exchange(int64_t chunk_rows) const;
  /// The partial sums of dx, which the leading operation has.
  PartialShape partials(const linear_op::Tile& dgrad) const;

  std::vector<autotune::Config> configs(const Setting& s) const;
  double predict_us(const autotune::Config& config, const Setting& s) const;
  autotune::Cost cost(std::span<const int64_t> symbols) const;
  autotune::OpDef::Tolerance tolerance(int64_t length) const;

 private:
  Linear dgrad_of(int64_t rows) const {
    return {.n = k, .k = rows, .weight_layout = WeightLayout::transposed, .dtype = dtype};
  }
};

void build(KernelBuilder& b, const Shape& shape, const Schedule& schedule, const Tensors<Var>& views,
           const ExchangeShape& exchange);
autotune::SizeExpr num_programs(const Shape& shape, const Schedule& schedule);

}  // namespace seqtile::kernels::seqpar::matmul_backward_op
