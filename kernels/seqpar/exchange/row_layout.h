// kernels/seqpar/exchange/row_layout.h -- where the rows of a RowLayout lie, for kernels and references.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cstdint>

#include "seqtile/op.h"
#include "seqtile/seqpar.h"

namespace seqtile::kernels::seqpar {

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

/// The layout that a workload names; contiguous where it names none.
inline RowLayout layout_of(const autotune::Workload& w) {
  return w.fields.get_string("layout", "contiguous") == "zigzag" ? RowLayout::zigzag : RowLayout::contiguous;
}

}  // namespace seqtile::kernels::seqpar
