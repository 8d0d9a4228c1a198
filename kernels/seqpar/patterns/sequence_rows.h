// kernels/seqpar/patterns/sequence_rows.h -- where a rank's rows stand in the sequence, inside a kernel: what masks go
// by.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "kernels/seqpar/exchange/row_layout.h"
#include "seqtile/builder.h"
#include "seqtile/seqpar.h"

namespace seqtile::kernels::seqpar {

/// The functions of RowLayout in Vars. In every layout a rank's rows are in the order of the sequence.
class SequenceRows {
 public:
  SequenceRows(KernelBuilder& b, RowLayout layout, int world_size, Var length)
      : b_(b), layout_(layout), world_size_(world_size), length_(length) {}

  RowPieces<Var> of(Var rank) const { return pieces_of(layout_, rank, length_, world_size_); }
  /// For tiles of rows.
  RowPieces<Var> in_i32(const RowPieces<Var>& pieces) const;
  /// The position of a row, or the positions of a tile of rows.
  Var position(const RowPieces<Var>& pieces, Var row) const;
  /// The number of the rank's rows, its first ones, that stand at `position` or before.
  Var num_until(const RowPieces<Var>& pieces, Var position) const;

 private:
  KernelBuilder& b_;
  const RowLayout layout_;
  const int world_size_;
  Var length_;
};

}  // namespace seqtile::kernels::seqpar
