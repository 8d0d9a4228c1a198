// kernels/act/act_and_mul.h -- y = activation(left half of x) * right half of x, for each row.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "kernels/act/activation.h"
#include "kernels/op/op_fields.h"
#include "kernels/op/op_tensors.h"

namespace seqtile::kernels {

/// The gate of a gated MLP (SwiGLU: silu, GeGLU: gelu) for models that keep gate and up projection in one tensor.
struct ActAndMul {
  static constexpr std::string_view kName = "act_and_mul";
  int64_t n = 0;  ///< columns of y
  DType dtype = DType::f32;
  Activation activation = Activation::silu;

  /// Shapes: x [length, 2 n], y [length, n].
  template <class T>
  struct Tensors {
    T x, y;
  };
  using Args = Tensors<Tensor>;
  void fields(FieldVisitor& v);
  void tensors(auto& v, auto& t) const {
    v.input("x", t.x, {kLength, 2 * n});
    v.output("y", t.y, {kLength, n});
  }
  autotune::Workload workload() const { return workload_of(*this); }

  int64_t tile_columns() const { return n; }
  double flops_a_row() const { return 12 * static_cast<double>(n); }
  void build(KernelBuilder& b, const Tensors<Var>& v, int64_t rows) const;
  void reference(const Tensors<Tensor>& t, int64_t row, Tensors<std::vector<double>>& out) const;
};

autotune::OpDef act_and_mul();

}  // namespace seqtile::kernels
