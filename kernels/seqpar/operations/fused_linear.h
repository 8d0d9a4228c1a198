// kernels/seqpar/operations/fused_linear.h -- linear layers of a sequence-parallel model: one launch communicates and
// computes.
// SPDX-License-Identifier: Apache-2.0
//
// The sequence of s tokens is cut over P ranks: rank r owns rows [floor(r s / P), floor((r + 1) s / P)), perhaps none.
// A column-parallel layer gathers the rows and computes its own columns of all of them; a row-parallel layer computes
// partial sums of all rows and gives each rank the sums of its own. docs/seqpar/guide.md explains how.
#pragma once
#include "autotune/op_def.h"
#include "kernels/linear/linear.h"
#include "kernels/seqpar/exchange/exchange.h"
#include "kernels/seqpar/exchange/ranks.h"

namespace seqtile::kernels::seqpar {

/// y = epilogue(gather(x) w^T), the epilogue of linear; one to three weights, or a gated pair. Sizes are this rank's.
struct FusedAllgatherAndLinear {
  int64_t n = 0, n2 = 0, n3 = 0;  ///< columns of this rank's weights
  int64_t k = 0;
  bool bias = false;
  Activation activation = Activation::none;
  bool gated = false;
  DType dtype = DType::f32;
  double scale = 1, soft_cap = 0;  ///< as linear's

  /// Shapes: x [own rows, k]; w.. [n, k] as in nn.Linear; bias.. [n]; y [length, n], y2 [length, n2], y3 [length, n3].
  struct Args {
    Tensor x, w, w2, w3, bias, bias2, bias3, y, y2, y3;
  };
  autotune::Workload workload(const Ranks& ranks) const;
  static Call pack(const Args& a, int64_t length) {
    return Call(length, {&a.x, &a.w, &a.w2, &a.w3, &a.bias, &a.bias2, &a.bias3, &a.y, &a.y2, &a.y3});
  }
};

/// Own rows of y = epilogue(sum over ranks of x w^T) + residual; k is this rank's share, bias and residual are added
/// once, by the owner of a row. Partial sums are rounded to `transport`, the owner's too, and added from rank 0 on: the
/// same bits for every schedule that takes k in the same slices. With `norm` a second output is rms_norm(y).
struct FusedLinearAndReducescatter {
  int64_t n = 0, k = 0;
  bool bias = false;
  Activation activation = Activation::none;
  bool residual = false;
  bool norm = false;
  double eps = 1e-5;
  DType transport = DType::f32;
  DType dtype = DType::f32;
  double scale = 1;  ///< as linear's

  /// Shapes: x [length, k]; w [n, k]; bias and norm_weight [n]; residual, y and normed [own rows, n].
  struct Args {
    Tensor x, w, bias, residual, y, norm_weight, normed;
  };
  autotune::Workload workload(const Ranks& ranks) const;
  static Call pack(const Args& a, int64_t length) {
    return Call(length, {&a.x, &a.w, &a.bias, &a.residual, &a.y, &a.norm_weight, &a.normed});
  }
};

/// The same with all rows of y on every rank, the same bits: in one shot for few rows, else in two.
struct LinearAndAllreduce {
  int64_t n = 0, k = 0;
  bool bias = false;
  Activation activation = Activation::none;
  bool residual = false;
  bool norm = false;
  double eps = 1e-5;
  DType transport = DType::f32;
  DType dtype = DType::f32;
  double scale = 1;  ///< as linear's

  /// Shapes: x [length, k]; w [n, k]; bias and norm_weight [n]; residual, y and normed [length, n], the residual the
  /// same on every rank.
  using Args = FusedLinearAndReducescatter::Args;
  autotune::Workload workload(const Ranks& ranks) const;
  static Call pack(const Args& a, int64_t length) { return FusedLinearAndReducescatter::pack(a, length); }
};

/// What these operations exchange, with chunks of so many rows.
ExchangeShape linear_exchange(const autotune::Workload& workload, int64_t chunk_rows = kSmallestChunk);

autotune::OpDef fused_allgather_and_linear();
autotune::OpDef fused_linear_and_reducescatter();
autotune::OpDef linear_and_allreduce();

}  // namespace seqtile::kernels::seqpar
