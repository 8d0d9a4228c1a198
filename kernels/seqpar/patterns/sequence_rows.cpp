// kernels/seqpar/patterns/sequence_rows.cpp -- see sequence_rows.h.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/seqpar/patterns/sequence_rows.h"

#include "kernels/seqpar/exchange/row_layout.h"

namespace seqtile::kernels::seqpar {

RowPieces<Var> SequenceRows::in_i32(const RowPieces<Var>& p) const {
  const auto cast = [&](Var value) { return b_.cast(value, DType::i32); };
  Var first = cast(p.first), num_first = cast(p.num_first), second = cast(p.second);
  return {first, num_first, second, cast(p.num_rows)};
}

Var SequenceRows::position(const RowPieces<Var>& p, Var row) const {
  if (layout_ == RowLayout::contiguous) return row + p.first;
  return b_.select(row < p.num_first, row + p.first, row + (p.second - p.num_first));
}

Var SequenceRows::num_until(const RowPieces<Var>& p, Var position) const {
  const auto within = [&](Var first, Var count) { return b_.max(b_.min(position - (first - 1), count), 0); };
  Var rows = within(p.first, p.num_first);
  return layout_ == RowLayout::contiguous ? rows : rows + within(p.second, p.num_rows - p.num_first);
}

}  // namespace seqtile::kernels::seqpar
