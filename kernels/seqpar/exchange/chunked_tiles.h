// kernels/seqpar/exchange/chunked_tiles.h -- tiles that programs compute chunk by chunk, and who of them publishes a
// chunk.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <functional>

#include "kernels/seqpar/exchange/exchange.h"

namespace seqtile::kernels::seqpar {

/// Errors: invalid_argument where a chunk is not whole tiles.
void check_chunk(int64_t chunk_rows, int64_t tile_rows);

/// Tiles of the same number of rows for each of several groups. A chunk is whole blocks of rows; its tiles follow each
/// other, so that it is complete early.
struct ChunkedTiles {
  /// `blocks`: of a group, as many as the longest shard that a rank may have. Errors: as check_chunk().
  ChunkedTiles(int64_t rows_of_block, int64_t rows_of_chunk, Var blocks);

  const int64_t block_rows, chunk_rows;
  const Var row_blocks;

  struct Place {
    Var turn, row, column_block;
  };
  /// The place of tile `id`, one of `column_blocks` side by side; `turn` counts the groups.
  Place place_of(KernelBuilder& b, Var id, int64_t column_blocks) const;

  /// Counts a program that has ended its part of the block of rows from `row` on, one of `programs_per_block`, also
  /// one beyond the rows; whoever completes a chunk publishes it, unless the channel is aborted. `chunks`: of these
  /// rows, at least 1. `counters`: an element before those of the chunks, then as many for each of `num_groups`;
  /// `first` gives the number of a group's first one, from the number of a group's.
  void count(KernelBuilder& b, Exchange& ex, Var counters, int64_t num_groups, const std::function<Var(Var)>& first,
             Var chunks, Var row, int64_t programs_per_block, const std::function<void(Var chunk)>& publish) const;
};

}  // namespace seqtile::kernels::seqpar
