// kernels/seqpar/operations/alltoall_linear.h -- from own heads of all rows to own rows, and the product behind
// attention.
// SPDX-License-Identifier: Apache-2.0
//
// Attention with its heads cut over the ranks leaves a rank the columns of its heads, of all rows. The output product
// of a row needs all of its columns: they meet in the staging of the row's owner, each rank's beside those of the
// others, so that what is multiplied is a matrix as linear has it, and the bits are linear's.
#pragma once
#include <string>

#include "autotune/op_def.h"
#include "kernels/linear/linear.h"
#include "kernels/op/call.h"
#include "kernels/seqpar/exchange/exchange.h"
#include "kernels/seqpar/exchange/ranks.h"

namespace seqtile::kernels::seqpar {

/// Own rows of y = epilogue(x w^T) + residual, where every rank has the columns of its own heads of x: rank r those of
/// heads [floor(r heads / P), floor((r + 1) heads / P)). Where query heads share key heads and stay together, a group
/// of them is one head here: `heads` is then the number of key heads, `head_dim` that of a whole group.
struct FusedAlltoallAndLinear {
  int64_t heads = 0, head_dim = 0, n = 0;
  bool bias = false;
  Activation activation = Activation::none;
  bool residual = false;
  DType dtype = DType::f32;

  /// Shapes: x [length, own heads head_dim]; w [n, heads head_dim], whole on every rank; bias [n]; residual and y
  /// [own rows, n].
  struct Args {
    Tensor x, w, bias, residual, y;
  };
  autotune::Workload workload(const Ranks& ranks) const;
  static Call pack(const Args& a, int64_t length) { return Call(length, {&a.x, &a.w, &a.bias, &a.residual, &a.y}); }
};

/// What the operation exchanges, with chunks of so many rows.
ExchangeShape alltoall_linear_exchange(const autotune::Workload& workload, int64_t chunk_rows = kSmallestChunk);

autotune::OpDef fused_alltoall_and_linear();

}  // namespace seqtile::kernels::seqpar
