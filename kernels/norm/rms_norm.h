// kernels/norm/rms_norm.h -- y = x / sqrt(mean(x^2) + eps) * (weight_offset + weight), also of and before a sum.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "kernels/op/op_fields.h"
#include "kernels/op/op_tensors.h"

namespace seqtile::kernels {

/// Root-mean-square norm of each row (Zhang and Sennrich, NeurIPS 2019), computed in f32.
struct RmsNorm {
  static constexpr std::string_view kName = "rms_norm";
  /// With `residual`: sum = x + residual, y = norm(sum); sum = norm(x) + residual, without y; sum = norm(x) + residual,
  /// y = norm(sum).
  enum class Normed { sum, x, both };
  int64_t n = 0;
  double eps = 1e-5;
  bool residual = false;  ///< the sum is written out
  Normed normed = Normed::sum;
  double weight_offset = 0;  ///< 1 for Gemma, whose weights are stored as the difference from 1
  DType dtype = DType::f32;

  /// Shapes: x, residual, y, sum [length, n]; weight, x_weight [n]. residual and sum only with `residual`; x_weight,
  /// the weight of norm(x), only where that is taken; weight and y not where it alone is. y and sum may be x or
  /// residual.
  template <class T>
  struct Tensors {
    T x, residual{}, x_weight{}, weight{}, y{}, sum{};
  };
  using Args = Tensors<Tensor>;
  void fields(FieldVisitor& v);
  void tensors(auto& v, auto& t) const {
    v.input("x", t.x, {kLength, n});
    if (residual) v.input("residual", t.residual, {kLength, n});
    if (norms_x()) v.weight("x_weight", t.x_weight, {n}, {.mean = 1 - weight_offset});
    if (has_result()) v.weight("weight", t.weight, {n}, {.mean = 1 - weight_offset});
    if (has_result()) v.output("y", t.y, {kLength, n}, {.in_place = {"x", "residual"}});
    if (residual) v.output("sum", t.sum, {kLength, n}, {.in_place = {"x", "residual"}});
  }
  autotune::Workload workload() const { return workload_of(*this); }
  bool norms_x() const { return residual && normed != Normed::sum; }
  bool has_result() const { return !residual || normed != Normed::x; }

  int64_t tile_columns() const { return 2 * n; }
  double flops_a_row() const { return 4 * static_cast<double>(n) * (norms_x() + has_result()); }
  void build(KernelBuilder& b, const Tensors<Var>& v, int64_t rows) const;
  void reference(const Tensors<Tensor>& t, int64_t row, Tensors<std::vector<double>>& out) const;
  autotune::OpDef::Tolerance tolerance() const;
};

autotune::OpDef rms_norm();

}  // namespace seqtile::kernels
