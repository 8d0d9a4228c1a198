// kernels/linear/linear_wgrad_tile.h -- one block of a weight's gradient: what the operations that compute one share.
// SPDX-License-Identifier: Apache-2.0
//
// The product dy^T x is that of a linear layer with n rows, k columns and a depth of the length: configurations and
// predictions are linear's, but for form "matrix".
#pragma once
#include <vector>

#include "kernels/linear/linear_config.h"

namespace seqtile::kernels::linear_wgrad_op {

struct Gradient {
  int64_t n, k;  ///< of the weight [n, k]
  bool accumulate;
  DType dtype, dw_dtype;
};

/// The linear layer whose product this is.
Linear product(const Gradient& gradient, int64_t length);
std::vector<linear_op::Tile> candidates(const Gradient& gradient, int threads, int64_t length, const Target& target);
double predict_us(const Gradient& gradient, const linear_op::Tile& tile, int threads, int64_t length,
                  const Target& target);

/// sum + dy^T x over the rows of both, for the block of dw at (row, column): a column of dy and one of x.
Var add_products(KernelBuilder& b, const linear_op::Tile& tile, Var dy, Var x, Var row, Var column, Var sum);

}  // namespace seqtile::kernels::linear_wgrad_op
