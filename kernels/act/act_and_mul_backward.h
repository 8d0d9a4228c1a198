// kernels/act/act_and_mul_backward.h -- the gradient of activation(left half of x) * right half of x, for each row.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "kernels/act/activation.h"
#include "kernels/op/op_fields.h"
#include "kernels/op/op_tensors.h"

namespace seqtile::kernels {

/// dgate = dy up activation'(gate), dup = dy activation(gate); laid out as gate and up are in x.
struct ActAndMulBackward {
  static constexpr std::string_view kName = "act_and_mul_backward";
  int64_t n = 0;  ///< columns of dy
  DType dtype = DType::f32;
  Activation activation = Activation::silu;

  /// Shapes: dy [length, n]; x, dx [length, 2 n]. dx may be x.
  template <class T>
  struct Tensors {
    T dy, x, dx;
  };
  using Args = Tensors<Tensor>;
  void fields(FieldVisitor& v);
  void tensors(auto& v, auto& t) const {
    v.input("dy", t.dy, {kLength, n});
    v.input("x", t.x, {kLength, 2 * n});
    v.output("dx", t.dx, {kLength, 2 * n}, {.in_place = {"x"}});
  }
  autotune::Workload workload() const { return workload_of(*this); }

  /// Columns of a program. Rows of wide models are cut into equal parts, so that a GPU's threads hold in registers the
  /// six values that they compute with for each column. Where that is not possible parts are smaller, as threads then
  /// test and address each element for itself, and the last one is shorter.
  int64_t block_columns() const;
  int64_t tile_columns() const { return 3 * block_columns(); }
  double flops_a_row() const { return 18 * static_cast<double>(n); }
  void build(KernelBuilder& b, const Tensors<Var>& v, int64_t rows) const;
  void reference(const Tensors<Tensor>& t, int64_t row, Tensors<std::vector<double>>& out) const;
};

autotune::OpDef act_and_mul_backward();

}  // namespace seqtile::kernels
