// kernels/row_kernel.h -- what the row kernels share: one program takes a block of whole rows.
// SPDX-License-Identifier: Apache-2.0
//
// Norms, softmax, activations, rope and embedding read [rows, n] tiles, compute in f32 and write whole rows back. Their
// only parameter is `rows`, the rows of one program. They are bound by memory bandwidth: few rows keep a program's
// tile in the first-level cache, many rows keep the number of programs small.
#pragma once
#include <array>

#include "autotune/op_def.h"

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

}  // namespace seqtile::kernels
