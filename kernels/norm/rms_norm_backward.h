// kernels/norm/rms_norm_backward.h -- gradients of a root-mean-square norm's input and weight, in one launch.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "kernels/op/op_fields.h"
#include "kernels/op/op_tensors.h"

namespace seqtile::kernels {

/// The gradients of y = x r (weight_offset + weight) with r = 1 / sqrt(mean(x^2) + eps), which is computed again: with
/// g = dy (weight_offset + weight), dx = r (g - x r^2 mean(g x)) and dweight = the sum over the rows of dy x r.
struct RmsNormBackward {
  static constexpr std::string_view kName = "rms_norm_backward";
  int64_t n = 0;
  double eps = 1e-5;
  bool residual = false;  ///< adds the gradient that reaches x beside the norm
  double weight_offset = 0;
  DType dtype = DType::f32;

  /// Shapes: dy, x, residual, dx [length, n]; weight [n]; dweight [1, n] f32. x is what the norm saw: of a norm with
  /// residual, its `sum`. dx may be dy, x or residual.
  template <class T>
  struct Tensors {
    T dy, x, residual{}, weight, dx, dweight;
  };
  using Args = Tensors<Tensor>;
  void fields(FieldVisitor& v);
  void tensors(auto& v, auto& t) const {
    v.input("dy", t.dy, {kLength, n});
    v.input("x", t.x, {kLength, n});
    if (residual) v.input("residual", t.residual, {kLength, n});
    v.weight("weight", t.weight, {n}, {.mean = 1 - weight_offset});
    v.output("dx", t.dx, {kLength, n}, {.in_place = {"dy", "x", "residual"}});
    v.output("dweight", t.dweight, {1, n}, {.dtype = DType::f32});
  }
  autotune::Workload workload() const { return workload_of(*this); }

  double flops(int64_t length) const { return 12 * static_cast<double>(length * n); }
  void reference(const Tensors<Tensor>& t, std::span<const int64_t> rows, Tensors<std::vector<double>>& out) const;
  autotune::OpDef::Tolerance tolerance(int64_t length) const;
};

autotune::OpDef rms_norm_backward();

}  // namespace seqtile::kernels
