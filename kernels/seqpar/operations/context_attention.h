// kernels/seqpar/operations/context_attention.h -- attention over a sequence whose rows are cut over ranks: one launch
// of each.
// SPDX-License-Identifier: Apache-2.0
//
// Context parallelism: q, k, v and the result stay with the rank that owns their rows (row_layout.h). Keys and values
// go to every peer inside the launch; sums are kept in f32 from the first rank's keys to the last.
#pragma once
#include <string>

#include "autotune/op_def.h"
#include "kernels/op/call.h"
#include "kernels/seqpar/exchange/exchange.h"
#include "kernels/seqpar/exchange/ranks.h"

namespace seqtile::kernels::seqpar {

/// Own rows of softmax(scale q k^T) v over the keys of all ranks. A query meets the keys of its own rank first, then
/// those of rank + 1, rank + 2, ..., around: the bits depend on the tile, layout and number of ranks, and on nothing
/// else.
struct ContextAttentionForward {
  int64_t heads = 0, kv_heads = 0, head_dim = 0;
  bool causal = true;                 ///< a query sees the keys of the sequence up to its own row
  std::string layout = "contiguous";  ///< "contiguous" | "zigzag": equal work for all ranks under a causal mask
  double scale = 0;                   ///< 0: 1 / sqrt(head_dim)
  bool lse = false;                   ///< a second output
  DType dtype = DType::f32;

  /// Shapes: q and out [own rows, heads head_dim]; k and v [own rows, kv_heads head_dim]; lse [own rows, heads] f32,
  /// the natural logarithm of each row's sum of exponentials. Own rows are num_rows() of the layout; what else goes by
  /// their place in the sequence, such as `Rope`, takes it from fill_positions().
  struct Args {
    Tensor q, k, v, out, lse;
  };
  autotune::Workload workload(const Ranks& ranks) const;
  static Call pack(const Args& a, int64_t length);
};

/// What the operation exchanges, with chunks of so many rows.
ExchangeShape context_attention_exchange(const autotune::Workload& workload, int64_t chunk_rows = kSmallestChunk);

autotune::OpDef context_attention_forward();

}  // namespace seqtile::kernels::seqpar
