// kernels/rows/embedding.h -- y[t] = scale * table[ids[t]].
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "kernels/op/op_fields.h"
#include "kernels/op/op_tensors.h"

namespace seqtile::kernels {

/// Rows of a table by token id. An id outside of the table is refused on CPUs, and gives zeros on GPUs.
struct Embedding {
  static constexpr std::string_view kName = "embedding";
  int64_t vocab = 0, n = 0;
  double scale = 1;  ///< sqrt(n) for Gemma
  DType dtype = DType::f32;

  /// Shapes: ids [length] i32, table [vocab, n], y [length, n].
  template <class T>
  struct Tensors {
    T ids, table, y;
  };
  using Args = Tensors<Tensor>;
  void fields(FieldVisitor& v);
  void tensors(auto& v, auto& t) const {
    v.input("ids", t.ids, {kLength}, {.dtype = DType::i32, .rows_of = vocab});
    v.weight("table", t.table, {vocab, n});
    v.output("y", t.y, {kLength, n});
  }
  autotune::Workload workload() const { return workload_of(*this); }

  int64_t tile_columns() const { return n; }
  double flops_a_row() const { return static_cast<double>(n); }
  int64_t gathered_bytes_a_row() const { return n * dtype_bytes(dtype); }
  void build(KernelBuilder& b, const Tensors<Var>& v, int64_t rows) const;
  void reference(const Tensors<Tensor>& t, int64_t row, Tensors<std::vector<double>>& out) const;
};

autotune::OpDef embedding();

}  // namespace seqtile::kernels
