// kernels/seqpar/exchange/row_layout.cpp -- see row_layout.h, and seqtile/seqpar.h.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/seqpar/exchange/row_layout.h"

#include "jit/base/cdiv.h"

namespace seqtile::kernels::seqpar {

int64_t num_rows(RowLayout layout, int rank, int64_t length, int world_size) {
  return pieces_of<int64_t>(layout, rank, length, world_size).num_rows;
}

int64_t most_rows(RowLayout layout, int64_t length, int world_size) {
  return layout == RowLayout::zigzag ? 2 * cdiv(length, 2 * world_size) : cdiv(length, world_size);
}

int64_t position_of_row(RowLayout layout, int rank, int64_t row, int64_t length, int world_size) {
  const auto p = pieces_of<int64_t>(layout, rank, length, world_size);
  return row < p.num_first ? p.first + row : p.second + row - p.num_first;
}

void fill_positions(RowLayout layout, int rank, int64_t length, int world_size, std::span<int32_t> positions) {
  for (size_t row = 0; row < positions.size(); ++row)
    positions[row] = static_cast<int32_t>(position_of_row(layout, rank, static_cast<int64_t>(row), length, world_size));
}

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

RowPlace place_of_row(RowLayout layout, int64_t position, int64_t length, int world_size) {
  for (int rank = 0; rank < world_size; ++rank) {
    const auto p = pieces_of<int64_t>(layout, rank, length, world_size);
    if (position >= p.first && position < p.first + p.num_first) return {rank, position - p.first};
    const int64_t behind = position - p.second;
    if (behind >= 0 && behind < p.num_rows - p.num_first) return {rank, p.num_first + behind};
  }
  throw Error(ErrorCode::invalid_argument,
              "position " + std::to_string(position) + " of " + std::to_string(length) + " rows: no rank owns it");
}

}  // namespace seqtile::kernels::seqpar
