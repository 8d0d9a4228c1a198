// kernels/op/row_kernel.h -- what the row kernels share: one program takes a block of whole rows.
// SPDX-License-Identifier: Apache-2.0
//
// Norms, softmax, activations, rope and embedding read [rows, n] tiles, compute in f32 and write whole rows back. Their
// only parameter is `rows`, the rows of one program. They are bound by memory bandwidth: few rows keep a program's
// tile in the first-level cache, many rows keep the number of programs small.
#pragma once
#include <array>

#include "jit/ir/builder.h"
#include "kernels/op/typed_op.h"

namespace seqtile::kernels {

constexpr int64_t kMaxFeatures = int64_t{1} << 20;  ///< columns of a row, weights' dimensions
constexpr int64_t kMaxHeads = 1024;

/// A value in f32 for computing, and back in the storage format.
inline Var to_f32(KernelBuilder& b, Var value) {
  return value.type().dtype == DType::f32 ? value : b.cast(value, DType::f32);
}
inline Var to_storage(KernelBuilder& b, Var value, DType dtype) {
  return value.type().dtype == dtype ? value : b.cast(value, dtype);
}
/// [rows] -> [rows, n], each value repeated along its row.
inline Var across(KernelBuilder& b, Var column, int64_t rows, int64_t n) {
  return b.broadcast(b.expand(column, 1), {rows, n});
}
/// [n] -> [rows, n], the same values in every row.
inline Var down(KernelBuilder& b, Var row, int64_t rows, int64_t n) { return b.broadcast(b.expand(row, 0), {rows, n}); }

/// Fills in the members of `op` that all row kernels have in common: configuration space, default, predictions, grid;
/// and cost, which they need. `tile_columns`: f32 values that a program's tiles hold for each row.
void define_row_kernel(autotune::OpDef& op, int64_t (*tile_columns)(const autotune::Workload&),
                       autotune::Cost (*cost)(const autotune::Workload&, std::span<const int64_t> symbols));

/// Bytes of the tensors that have a row for each row of the call, and operations on them.
autotune::Cost row_cost(const autotune::Schema& schema, int64_t length, double flops_a_row);

/// The OpDef of a row kernel that is one type: beside what typed_op() needs it has
///   int64_t tile_columns() const;
///   double flops_a_row() const;
///   int64_t gathered_bytes_a_row() const;  // absent: no row is read from a tensor of another length
///   void build(KernelBuilder& b, const Tensors<Var>& v, int64_t rows) const;  // of one program
template <class Op>
autotune::OpDef row_kernel(std::string summary, int64_t version = 1) {
  using autotune::Workload;
  autotune::OpDef op = typed_op<Op>(std::move(summary), version);
  define_row_kernel(
      op, [](const Workload& w) { return op_of<Op>(w).tile_columns(); },
      [](const Workload& w, std::span<const int64_t> symbols) {
        const Op self = op_of<Op>(w);
        autotune::Cost cost = row_cost(schema_of(self).schema, symbols[0], self.flops_a_row());
        if constexpr (requires { self.gathered_bytes_a_row(); })
          cost.bytes_read += static_cast<double>(symbols[0] * self.gathered_bytes_a_row());
        return cost;
      });
  op.build = [](KernelBuilder& b, const Workload& w, const autotune::Config& config, const Target&) {
    const Op self = op_of<Op>(w);
    const auto views = views_of(self, b);
    self.build(b, views, config.get_int("rows"));
  };
  return op;
}

}  // namespace seqtile::kernels
