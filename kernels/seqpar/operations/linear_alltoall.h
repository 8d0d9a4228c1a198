// kernels/seqpar/operations/linear_alltoall.h -- the product in front of attention: own rows of x, own heads of all
// rows.
// SPDX-License-Identifier: Apache-2.0
//
// Every rank multiplies its rows with all heads' weights. What belongs to another rank's heads goes straight from the
// registers to that rank's staging, chunk by chunk; what is its own, to its outputs. Attention follows on own heads and
// all rows, then fused_alltoall_and_linear as the way back.
#pragma once
#include <string>

#include "autotune/op_def.h"
#include "kernels/op/call.h"
#include "kernels/seqpar/exchange/exchange.h"
#include "kernels/seqpar/exchange/ranks.h"

namespace seqtile::kernels::seqpar {

/// Own heads of y = x w^T + bias for queries, keys and values, all rows. KV groups are cut by the floor rule, with all
/// their query heads; with fewer KV heads than ranks query heads are, and every rank gets the KV heads that they read
/// (GroupedHeads).
struct FusedLinearAndAlltoall {
  int64_t heads = 0, kv_heads = 0, head_dim = 0, k = 0;
  bool bias = false;
  DType dtype = DType::f32;

  /// Shapes: x [own rows, k]; w [heads head_dim, k], w2 and w3 [kv_heads head_dim, k], of queries, keys and values,
  /// whole on every rank, and their biases [columns]; y [length, own heads head_dim], y2 and y3 [length, own KV heads
  /// head_dim].
  struct Args {
    Tensor x, w, w2, w3, bias, bias2, bias3, y, y2, y3;
  };
  autotune::Workload workload(const Ranks& ranks) const;
  static Call pack(const Args& a, int64_t length) {
    return Call(length, {&a.x, &a.w, &a.w2, &a.w3, &a.bias, &a.bias2, &a.bias3, &a.y, &a.y2, &a.y3});
  }
};

/// What the operation exchanges, with chunks of so many rows.
ExchangeShape linear_alltoall_exchange(const autotune::Workload& workload, int64_t chunk_rows = kSmallestChunk);

autotune::OpDef fused_linear_and_alltoall();

}  // namespace seqtile::kernels::seqpar
