// kernels/seqpar/exchange/row_layout.h -- which rows of the sequence a rank owns, and in which order.
// SPDX-License-Identifier: Apache-2.0
//
// Contiguous: rank r of P owns rows [floor(r s / P), floor((r + 1) s / P)). Zigzag: the sequence of s rows is cut into
// 2 P chunks by the same rule, and rank r owns chunk r and behind it chunk 2 P - 1 - r, so that under a causal mask all
// ranks have the same work. P = 2, s = 10:
//
//   chunks 0 1 | 2 3 4 | 5 6 | 7 8 9     rank 0 owns 0 1 7 8 9, rank 1 owns 2 3 4 5 6
//
// In both the rows of a rank are in the order of the sequence: what a query sees under a causal mask of another rank's
// keys are always that rank's first ones.
#pragma once
#include <array>
#include <cstdint>
#include <span>
#include <string_view>

namespace seqtile::kernels::seqpar {

enum class RowLayout : uint8_t { contiguous, zigzag };
inline constexpr std::array<std::string_view, 2> kRowLayoutNames = {"contiguous", "zigzag"};

int64_t num_rows(RowLayout layout, int rank, int64_t length, int world_size);
/// The most rows that any rank owns at any length up to this one. In the zigzag layout they may be one more than
/// ceil(length / P).
int64_t most_rows(RowLayout layout, int64_t length, int world_size);

/// Where a rank's row stands in the sequence: what rotary embeddings, masks and labels go by.
int64_t position_of_row(RowLayout layout, int rank, int64_t row, int64_t length, int world_size);
/// Writes the positions of all rows of a rank, as `Rope` takes them. Requires: as many as the rank owns.
void fill_positions(RowLayout layout, int rank, int64_t length, int world_size, std::span<int32_t> positions);

/// The rank that owns a row of the sequence, and which of its rows it is.
struct RowPlace {
  int rank;
  int64_t row;
};
RowPlace place_of_row(RowLayout layout, int64_t position, int64_t length, int world_size);

/// A rank's rows: `num_first` from position `first` on, the rest of `num_rows` from position `second` on. T is a
/// number, or a Var of a kernel.
template <class T>
struct RowPieces {
  T first, num_first, second, num_rows;
};

template <class T>
RowPieces<T> pieces_of(RowLayout layout, T rank, T length, int world_size) {
  const int64_t chunks = layout == RowLayout::zigzag ? 2 * world_size : world_size;
  const auto begin = [&](T chunk) { return chunk * length / chunks; };
  T first = begin(rank), end = begin(rank + int64_t{1}), num_first = end - first;
  if (layout == RowLayout::contiguous) return {first, num_first, end, num_first};
  T mirrored = rank * int64_t{-1} + (chunks - 1), second = begin(mirrored), last = begin(mirrored + int64_t{1});
  return {first, num_first, second, num_first + (last - second)};
}

}  // namespace seqtile::kernels::seqpar
