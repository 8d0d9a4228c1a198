// kernels/norm/layer_norm.h -- y = (x - mean) / sqrt(variance + eps) * weight + bias for each row.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "kernels/op/op_fields.h"
#include "kernels/op/op_tensors.h"

namespace seqtile::kernels {

/// Layer norm of each row, computed in f32; the variance is taken about the mean, in a second pass over the row.
struct LayerNorm {
  static constexpr std::string_view kName = "layer_norm";
  int64_t n = 0;
  double eps = 1e-5;
  bool bias = true;
  bool residual = false;  ///< sum = x + residual is written out, and normalised in place of x
  DType dtype = DType::f32;

  /// Shapes: x, residual, y, sum [length, n]; weight, bias [n]. bias only with `bias`, residual and sum with
  /// `residual`. y and sum may be x or residual.
  template <class T>
  struct Tensors {
    T x, residual{}, weight, bias{}, y, sum{};
  };
  using Args = Tensors<Tensor>;
  void fields(FieldVisitor& v);
  void tensors(auto& v, auto& t) const {
    v.input("x", t.x, {kLength, n});
    if (residual) v.input("residual", t.residual, {kLength, n});
    v.weight("weight", t.weight, {n}, {.mean = 1});
    if (bias) v.weight("bias", t.bias, {n}, {.mean = 0});
    v.output("y", t.y, {kLength, n}, {.in_place = {"x", "residual"}});
    if (residual) v.output("sum", t.sum, {kLength, n}, {.in_place = {"x", "residual"}});
  }
  autotune::Workload workload() const { return workload_of(*this); }

  int64_t tile_columns() const { return 2 * n; }
  double flops_a_row() const { return 7 * static_cast<double>(n); }
  void build(KernelBuilder& b, const Tensors<Var>& v, int64_t rows) const;
  void reference(const Tensors<Tensor>& t, int64_t row, Tensors<std::vector<double>>& out) const;
  autotune::OpDef::Tolerance tolerance() const;
};

autotune::OpDef layer_norm();

}  // namespace seqtile::kernels
