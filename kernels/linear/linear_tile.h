// kernels/linear/linear_tile.h -- one block of a linear layer's outputs: what the operations built on products share.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <vector>

#include "kernels/linear/linear_config.h"
#include "seqtile/builder.h"

namespace seqtile::kernels::linear_op {

/// The views of a kernel, by weight and output.
struct Operands {
  Operands() = default;
  Operands(const Linear& s, const Linear::Tensors<Var>& views);
  /// Column blocks are counted through all outputs: leaves the weight, bias and output of block `index` in first place
  /// and returns the block's first column there.
  Var choose(KernelBuilder& b, const Linear& s, Var index, int64_t block_n);
  Var x, residual;
  std::vector<Var> w, bias, y;
};

/// The fields of an operation that computes gradients of weights.
void visit_gradient(FieldVisitor& v, bool& accumulate, bool& f32_gradient);

/// Blocks of block_n columns of all outputs.
int64_t column_blocks(const Linear& s, int64_t block_n);
/// x w^T in f32 for rows [row, row + block_m) and block_n columns of the weight in first place from `column` on; of a
/// gated pair two. Added to `sums`, where some are given.
std::vector<Var> multiply(KernelBuilder& b, const Linear& s, const Tile& t, const Operands& v, Var row, Var column,
                          std::vector<Var> sums = {});
/// sum + dy^T x over the rows of both, for the block of a weight's gradient at (row, column): a column of dy and one of
/// x.
Var add_products_of_rows(KernelBuilder& b, const Tile& tile, Var dy, Var x, Var row, Var column, Var sum);
/// Bias, activation, gate and residual, in the output's format. `sums` are [rows, columns] each.
Var result_of(KernelBuilder& b, const Linear& s, const Operands& v, Var row, Var column, std::vector<Var> sums);
/// The same, then the store to the output in first place; what lies beyond it is left out.
void store_result(KernelBuilder& b, const Linear& s, const Operands& v, Var row, Var column, std::vector<Var> sums);

}  // namespace seqtile::kernels::linear_op
