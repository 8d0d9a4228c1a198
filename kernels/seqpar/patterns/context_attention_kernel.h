// kernels/seqpar/patterns/context_attention_kernel.h -- attention to the keys of all ranks, in one launch of each.
// SPDX-License-Identifier: Apache-2.0
//
// A rank's queries stay where they are; its keys and values go to every peer, side by side in one row of the staging,
// so that one flag stands for both. A program takes block_m queries of one head through the keys of its own rank and
// then of rank + 1, rank + 2, ..., with a running softmax in f32 from the first key to the last. That order is fixed,
// whoever is late, and blocks of keys start at a rank's first key: neither arrival nor chunk size changes a bit.
#pragma once
#include "kernels/attention/attention_parts.h"
#include "kernels/seqpar/exchange/exchange.h"
#include "kernels/seqpar/exchange/transfer.h"

namespace seqtile::kernels::seqpar {

struct ContextShape {
  AttentionForward attention;
  DType dtype;
  bool has_lse;
  RowLayout layout;
  int world_size;
  int64_t identity;
};

/// The tile, and how a launch communicates.
struct ContextSchedule {
  int64_t block_m, block_n;   ///< queries and keys of a tile
  TransferSchedule transfer;  ///< chunks are whole blocks of keys
};

ExchangeShape context_exchange(const ContextShape& shape, int64_t chunk_rows);

/// Programs: those that push, the tiles of the rank's queries, and one more.
autotune::SizeExpr context_programs(const ContextShape& shape, const ContextSchedule& schedule);

/// Parameters: q [own rows, heads head_dim], k and v [own rows, kv_heads head_dim], out like q, lse [own rows, heads]
/// where it is wanted; sequence [length], of which nothing but the size is read; then those of declare_channel(), one
/// counter.
void build_context_attention(KernelBuilder& b, const ContextShape& shape, const ContextSchedule& schedule);

}  // namespace seqtile::kernels::seqpar
