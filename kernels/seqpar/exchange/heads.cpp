// kernels/seqpar/exchange/heads.cpp -- see seqtile/seqpar.h.
// SPDX-License-Identifier: Apache-2.0
#include "seqtile/seqpar.h"

namespace seqtile::kernels::seqpar {

GroupedHeads::GroupedHeads(int64_t heads, int64_t kv_heads, int64_t head_dim, int64_t ranks)
    : heads_(heads),
      kv_heads_(kv_heads),
      head_dim_(head_dim),
      ranks_(ranks),
      group_(heads_ / kv_heads_),
      unit_(kv_heads_ >= ranks_ ? group_ : 1),
      is_even_{true, true},
      most_columns_{0, 0} {
  for (const bool of_keys : {false, true})
    for (int64_t rank = 0; rank < ranks_; ++rank) {
      is_even_[of_keys] = is_even_[of_keys] && columns(rank, of_keys) == columns(int64_t{0}, of_keys);
      most_columns_[of_keys] = std::max(most_columns_[of_keys], columns(rank, of_keys));
    }
}

}  // namespace seqtile::kernels::seqpar
