// kernels/seqpar/operations/matmul_backward.h -- backward of the products that communicate: one launch of each rank,
// too.
// SPDX-License-Identifier: Apache-2.0
//
// A layer's backward pass is two products over the same rows: of the gradient with the weight, and with what the layer
// was given, summed over the rows. "Leading" is the column-parallel product at the start of a block, whose input is
// gathered; "trailing" the row-parallel one at its end. docs/seqpar/guide.md says what is sent and what hides it.
#pragma once
#include "autotune/op_def.h"
#include "kernels/op/call.h"
#include "kernels/seqpar/exchange/exchange.h"
#include "kernels/seqpar/exchange/ranks.h"
#include "kernels/seqpar/operations/fused_linear.h"

namespace seqtile::kernels::seqpar {

/// Of FusedLinearAndReducescatter: du = gather(dz) w and dw = gather(dz)^T u, by one gather. k is this rank's share.
/// Sums of dw are over the rows that there are, in f32: the own ones first, then those of rank + 1, ...
struct SequenceParallelTrailingMatmulBackward {
  int64_t n = 0, k = 0;       ///< of the weight [n, k]
  bool accumulate = false;    ///< dw = before + the sums
  bool f32_gradient = false;  ///< dw is f32, whatever the operands are: main gradients
  DType dtype = DType::f32;

  /// Shapes: dz [own rows, n]; w, before and dw [n, k]; u and du [length, k]. `before` is there with `accumulate`, and
  /// may be dw itself, which an aborted call fills with NaN.
  struct Args {
    Tensor dz, w, u, before, du, dw;
  };
  autotune::Workload workload(const Ranks& ranks) const;
  static Call pack(const Args& a, int64_t length) { return Call(length, {&a.dz, &a.w, &a.u, &a.before, &a.du, &a.dw}); }
};

/// Of FusedAllgatherAndLinear: own rows of dx = sum over ranks and weights of dy_i w_i, and dw_i = dy_i^T gather(x).
/// The products of several weights are one sum, in f32; each rank's is rounded to `transport` and added from rank 0 on.
struct SequenceParallelLeadingMatmulBackward {
  int64_t n = 0, n2 = 0,
          n3 = 0;  ///< columns of this rank's outputs, rows of its weights; n2, n3: 0 where there is none
  int64_t k = 0;
  bool accumulate = false;
  bool f32_gradient = false;
  DType transport = DType::f32;
  DType dtype = DType::f32;

  /// Shapes: dy.. [length, n]; w.., before.. and dw.. [n, k]; x and dx [own rows, k]. `before` as above.
  struct Args {
    Tensor dy, dy2, dy3, w, w2, w3, x, before, before2, before3, dx, dw, dw2, dw3;
  };
  autotune::Workload workload(const Ranks& ranks) const;
  static Call pack(const Args& a, int64_t length) {
    return Call(length, {&a.dy, &a.dy2, &a.dy3, &a.w, &a.w2, &a.w3, &a.x, &a.before, &a.before2, &a.before3, &a.dx,
                         &a.dw, &a.dw2, &a.dw3});
  }
};

/// What these operations exchange, with chunks of so many rows.
ExchangeShape matmul_backward_exchange(const autotune::Workload& workload, int64_t chunk_rows = kSmallestChunk);

autotune::OpDef sequence_parallel_trailing_matmul_backward();
autotune::OpDef sequence_parallel_leading_matmul_backward();

}  // namespace seqtile::kernels::seqpar
