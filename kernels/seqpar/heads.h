// kernels/seqpar/heads.h -- which of a row's columns are those of a rank's heads.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "autotune/op_def.h"
#include "kernels/seqpar/fused_op.h"

namespace seqtile::kernels::seqpar {

/// Rank r owns heads [floor(r heads / P), floor((r + 1) heads / P)), perhaps none.
struct Heads {
  explicit Heads(const autotune::Workload& w)
      : heads(w.fields.get_int("heads")), head_dim(w.fields.get_int("head_dim")), ranks(world_size_of(w)) {}
  int64_t heads, head_dim, ranks;
  int64_t all_columns() const { return heads * head_dim; }
  int64_t most_columns() const { return (heads + ranks - 1) / ranks * head_dim; }
  bool is_even() const { return heads % ranks == 0; }
  int64_t first(int rank) const { return rank * heads / ranks * head_dim; }
  int64_t columns(int rank) const { return first(rank + 1) - first(rank); }
  Var first(Var rank) const { return rank * heads / ranks * head_dim; }
  Var columns(KernelBuilder& b, Var rank) const {
    return is_even() ? b.constant(DType::i64, most_columns()) : first(rank + 1) - first(rank);
  }
  /// Those of the rank's own heads, as a schema names them.
  autotune::Dim own_columns() const { return is_even() ? autotune::Dim(most_columns()) : "own_columns"; }
};

}  // namespace seqtile::kernels::seqpar
