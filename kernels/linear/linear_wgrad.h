// kernels/linear/linear_wgrad.h -- dw = dy^T x, the gradient of a linear layer's weight, summed over the rows.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <array>
#include <vector>

#include "kernels/linear/linear.h"

namespace seqtile::kernels {

/// The other half of the backward pass of y = x w^T; the gradient of x is linear with transposed weights. Sums run over
/// the rows that there are, in f32 and in one order that only the configuration decides.
struct LinearWgrad {
  static constexpr std::string_view kName = "linear_wgrad";
  int64_t n = 0, k = 0;       ///< of the weight [n, k]
  bool accumulate = false;    ///< dw = before + the sums
  bool f32_gradient = false;  ///< dw is f32, whatever x and dy are: main gradients
  DType dtype = DType::f32;

  /// Shapes: dy [length, n], x [length, k]; before and dw [n, k]. `before` is there with `accumulate`, and may be dw
  /// itself.
  template <class T>
  struct Tensors {
    T dy, x, before{}, dw;
  };
  using Args = Tensors<Tensor>;
  void fields(FieldVisitor& v);
  void tensors(auto& v, auto& t) const {
    v.input("dy", t.dy, {kLength, n});
    v.input("x", t.x, {kLength, k});
    if (accumulate) v.input("before", t.before, {n, k}, {.dtype = dw_dtype()});
    v.output("dw", t.dw, {n, k}, {.dtype = dw_dtype(), .in_place = {"before"}});
  }
  autotune::Workload workload() const { return workload_of(*this); }

  DType dw_dtype() const { return f32_gradient ? DType::f32 : dtype; }
  /// The linear layer whose product this is: n rows, k columns and a depth of the length. Configurations and
  /// predictions are that layer's, but for form "matrix".
  Linear product(int64_t length) const;

  std::vector<linear_op::Tile> tiles(int threads, int64_t length, const Target& target) const;
  [[noreturn]] void refuse(const Target& target) const;
  double predict_us(const linear_op::Tile& tile, int threads, int64_t length, const Target& target) const;
  autotune::GpuWork gpu_work(const linear_op::Tile& tile, int64_t length, const Target& target) const;
  std::vector<autotune::GpuSample> gpu_samples(const linear_op::Tile& tile, int64_t length) const;
  double flops(int64_t length) const;
  std::array<autotune::SizeExpr, 3> grid(const linear_op::Tile& tile) const;
  void build(KernelBuilder& b, const Tensors<Var>& v, const linear_op::Tile& tile, const Target& target) const;
  void reference(const Tensors<Tensor>& t, std::span<const int64_t> rows, Tensors<std::vector<double>>& out) const;
  autotune::OpDef::Tolerance tolerance(int64_t length) const;
};

autotune::OpDef linear_wgrad();

}  // namespace seqtile::kernels
