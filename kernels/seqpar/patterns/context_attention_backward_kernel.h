// kernels/seqpar/patterns/context_attention_backward_kernel.h -- attention's gradients from the rows of all ranks.
// SPDX-License-Identifier: Apache-2.0
//
// A row of a rank's staging is all that a peer needs of one place of the sequence:
//
//   k [kv_heads head_dim] | v | q [heads head_dim] | dout | in f32: lse [heads], delta [heads]
//
// so one flag stands for all of it. delta = sum(dout out) is computed by who sends: it stands for all of out. As in
// attention_backward each product that two kinds of programs need is computed by both, and nothing is added across
// programs, or ranks. That moves more than k and v alone with partial sums of dk and dv on the way back would where few
// key heads serve many query heads, and less where they are as many; but sums stay in registers, and there is one
// exchange, not two that depend on each other.
#pragma once
#include "kernels/attention/attention_backward_parts.h"
#include "kernels/seqpar/exchange/exchange.h"
#include "kernels/seqpar/exchange/transfer.h"

namespace seqtile::kernels::seqpar {

struct ContextBackwardShape {
  AttentionBackward attention;
  DType dtype;
  RowLayout layout;
  int world_size;
  int64_t identity;

  // Columns of a staged row, in elements of `dtype`; those of its f32 part are counted in f32.
  int64_t q_columns() const { return attention.heads * attention.head_dim; }
  int64_t kv_columns() const { return attention.kv_heads * attention.head_dim; }
  int64_t v_column() const { return kv_columns(); }
  int64_t q_column() const { return 2 * kv_columns(); }
  int64_t dout_column() const { return q_column() + q_columns(); }
  int64_t lse_column() const { return (dout_column() + q_columns()) * dtype_bytes(dtype) / 4; }
  int64_t delta_column() const { return lse_column() + attention.heads; }
  int64_t columns() const;
};

/// The tile, and how a launch communicates.
struct ContextBackwardSchedule {
  int64_t block, block_n;     ///< rows of a program, rows of the other side at a time
  TransferSchedule transfer;  ///< chunks are whole blocks of block_n
};

ExchangeShape context_backward_exchange(const ContextBackwardShape& shape, int64_t chunk_rows);

/// Programs: those that push, the tiles of the rank's keys and of its queries, and one more.
autotune::SizeExpr context_backward_programs(const ContextBackwardShape& shape,
                                             const ContextBackwardSchedule& schedule);

/// Parameters: q, k, v, out, lse, dout, dq, dk and dv as ContextAttentionBackward::Args has them; sequence [length], of
/// which nothing but the size is read; then those of declare_channel(), one counter.
void build_context_backward(KernelBuilder& b, const ContextBackwardShape& shape,
                            const ContextBackwardSchedule& schedule);

}  // namespace seqtile::kernels::seqpar
