// kernels/seqpar/exchange/heads.cpp -- see heads.h.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/seqpar/exchange/heads.h"

namespace seqtile::kernels::seqpar {

GroupedHeads::GroupedHeads(const autotune::Workload& w)
    : heads_(w.fields.get_int("heads")),
      kv_heads_(w.fields.get_int("kv_heads")),
      head_dim_(w.fields.get_int("head_dim")),
      ranks_(world_size_of(w)),
      group_(heads_ / kv_heads_),
      unit_(kv_heads_ >= ranks_ ? group_ : 1),
      is_even_{true, true},
      most_columns_{0, 0} {
  for (const bool of_keys : {false, true})
    for (int64_t rank = 0; rank < ranks_; ++rank) {
      is_even_[of_keys] = is_even_[of_keys] && columns(rank, of_keys) == columns(0, of_keys);
      most_columns_[of_keys] = std::max(most_columns_[of_keys], columns(rank, of_keys));
    }
}

Var GroupedHeads::columns(KernelBuilder& b, Var rank, bool of_keys) const {
  if (is_even(of_keys)) return b.constant(DType::i64, most_columns(of_keys));
  Var queries = first_query(rank + int64_t{1}) - first_query(rank);
  if (!of_keys) return queries * head_dim_;
  return b.min(end_key(rank) - first_key(rank), queries) * head_dim_;
}

}  // namespace seqtile::kernels::seqpar
