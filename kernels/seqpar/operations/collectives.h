// kernels/seqpar/operations/collectives.h -- all-gather, reduce-scatter, all-reduce, all-to-all, broadcast: one launch
// a rank.
// SPDX-License-Identifier: Apache-2.0
//
// Rows of the sequence are cut over the ranks as in fused_linear.h. Sums are taken in f32, from rank 0 on, and rounded
// once: every rank gets the same bits.
#pragma once
#include <string>

#include "autotune/op_def.h"
#include "kernels/op/call.h"
#include "kernels/seqpar/exchange/exchange.h"
#include "kernels/seqpar/exchange/ranks.h"

namespace seqtile::kernels::seqpar {

/// The static part that all of them have; n: columns of a row.
struct Collective {
  int64_t n = 0;
  DType dtype = DType::f32;

  struct Args {
    Tensor x, y;
  };
  static Call pack(const Args& a, int64_t length) { return Call(length, {&a.x, &a.y}); }
};

/// y [length, n]: the rows of all ranks. x [own rows, n], which may be the rank's own rows of y, except in a graph.
struct AllGather : Collective {
  autotune::Workload workload(const Ranks& ranks) const;
};

/// y [own rows, n]: the sums over ranks of x [length, n].
struct ReduceScatter : Collective {
  autotune::Workload workload(const Ranks& ranks) const;
};

/// y [length, n]: the sums over ranks of x [length, n]; in one shot for few rows, else in two.
struct AllReduce : Collective {
  autotune::Workload workload(const Ranks& ranks) const;
};

/// y [length, n] is the root's x [length, n]; x may be y, on other ranks it is not read.
struct Broadcast : Collective {
  int root = 0;
  autotune::Workload workload(const Ranks& ranks) const;
};

/// The exchange around attention: rows of all heads against all rows of some heads. Rank r owns heads
/// [floor(r heads / P), floor((r + 1) heads / P)). `to_heads`: x [own rows, heads head_dim] -> y [length, own heads
/// head_dim]; else the way back.
struct AllToAll {
  int64_t heads = 0, head_dim = 0;
  bool to_heads = true;
  DType dtype = DType::f32;

  using Args = Collective::Args;
  autotune::Workload workload(const Ranks& ranks) const;
  static Call pack(const Args& a, int64_t length) { return Call(length, {&a.x, &a.y}); }
};

/// What these operations exchange, with chunks of so many rows.
ExchangeShape collective_exchange(const autotune::Workload& workload, int64_t chunk_rows);
/// With the smallest chunks that a configuration may have.
ExchangeShape collective_exchange(const autotune::Workload& workload);

autotune::OpDef all_gather();
autotune::OpDef reduce_scatter();
autotune::OpDef all_reduce();
autotune::OpDef all_to_all();
autotune::OpDef broadcast();

}  // namespace seqtile::kernels::seqpar
