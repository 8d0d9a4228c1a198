// kernels/seqpar/operations/context_attention_backward.h -- attention's gradients over a sequence cut over ranks, one
// launch.
// SPDX-License-Identifier: Apache-2.0
//
// Every rank gets all rows of k, v, q and dout, and two numbers for each query of a head, inside the launch. It
// computes dq of its own queries over all keys, and dk and dv of its own keys over all queries, in f32 from the first
// rank's rows to the last, rounded once: no partial gradient travels, and nothing is added across ranks.
#pragma once
#include <string>

#include "autotune/op_def.h"
#include "kernels/op/call.h"
#include "kernels/seqpar/exchange/exchange.h"
#include "kernels/seqpar/exchange/ranks.h"

namespace seqtile::kernels::seqpar {

/// The backward pass of ContextAttentionForward. A rank's rows meet those of its own rank first, then those of
/// rank + 1, rank + 2, ..., around: the bits depend on the tile, layout and number of ranks, and on nothing else.
struct ContextAttentionBackward {
  int64_t heads = 0, kv_heads = 0, head_dim = 0;
  bool causal = true;
  std::string layout = "contiguous";  ///< "contiguous" | "zigzag", as of the forward pass
  double scale = 0;                   ///< 0: 1 / sqrt(head_dim)
  DType dtype = DType::f32;

  /// Shapes: q, out, dout and dq [own rows, heads head_dim]; k, v, dk and dv [own rows, kv_heads head_dim]; lse
  /// [own rows, heads] f32. out and lse as the forward pass has written them.
  struct Args {
    Tensor q, k, v, out, lse, dout, dq, dk, dv;
  };
  autotune::Workload workload(const Ranks& ranks) const;
  static Call pack(const Args& a, int64_t length);
};

/// What the operation exchanges, with chunks of so many rows.
ExchangeShape context_backward_exchange(const autotune::Workload& workload, int64_t chunk_rows = kSmallestChunk);

autotune::OpDef context_attention_backward();

}  // namespace seqtile::kernels::seqpar
