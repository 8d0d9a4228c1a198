// kernels/rows/softmax.h -- y = exp(x - max x) / sum exp(x - max x) for each row.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "kernels/op/op_fields.h"
#include "kernels/op/op_tensors.h"

namespace seqtile::kernels {

/// Softmax of each row, computed in f32.
struct Softmax {
  static constexpr std::string_view kName = "softmax";
  int64_t n = 0;
  DType dtype = DType::f32;

  /// Shapes: x, y [length, n]. y may be x.
  template <class T>
  struct Tensors {
    T x, y;
  };
  using Args = Tensors<Tensor>;
  void fields(FieldVisitor& v);
  void tensors(auto& v, auto& t) const {
    v.input("x", t.x, {kLength, n});
    v.output("y", t.y, {kLength, n}, {.in_place = {"x"}});
  }
  autotune::Workload workload() const { return workload_of(*this); }

  int64_t tile_columns() const { return 2 * n; }
  double flops_a_row() const { return 12 * static_cast<double>(n); }
  void build(KernelBuilder& b, const Tensors<Var>& v, int64_t rows) const;
  void reference(const Tensors<Tensor>& t, int64_t row, Tensors<std::vector<double>>& out) const;
  autotune::OpDef::Tolerance tolerance() const;
};

autotune::OpDef softmax();

}  // namespace seqtile::kernels
