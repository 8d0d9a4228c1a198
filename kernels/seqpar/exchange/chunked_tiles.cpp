// kernels/seqpar/exchange/chunked_tiles.cpp -- see chunked_tiles.h.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/seqpar/exchange/chunked_tiles.h"

#include <fmt/format.h>

#include "seqtile/error.h"

namespace seqtile::kernels::seqpar {

// What is in two chunks would be used when the first one has come, and a chunk without a tile would never come.
void check_chunk(int64_t chunk_rows, int64_t tile_rows) {
  if (chunk_rows < tile_rows || chunk_rows % tile_rows != 0)
    throw Error(ErrorCode::invalid_argument,
                fmt::format("chunk_rows = {} is not a multiple of a tile's {} rows", chunk_rows, tile_rows));
}

ChunkedTiles::ChunkedTiles(int64_t rows_of_block, int64_t rows_of_chunk, Var blocks)
    : block_rows(rows_of_block), chunk_rows(rows_of_chunk), row_blocks(blocks) {
  check_chunk(chunk_rows, block_rows);
}

ChunkedTiles::Place ChunkedTiles::place_of(KernelBuilder& b, Var id, int64_t column_blocks) const {
  const int64_t per_chunk = chunk_rows / block_rows, tiles_per_chunk = per_chunk * column_blocks;
  Var of_turn = id % (row_blocks * column_blocks), first = of_turn / tiles_per_chunk * per_chunk;
  Var blocks = b.min(row_blocks - first, per_chunk), of_chunk = of_turn % tiles_per_chunk;
  return {id / (row_blocks * column_blocks), (first + of_chunk % blocks) * block_rows, of_chunk / blocks};
}

// Programs beyond the rows count too, so that every chunk waits for the same number; an empty shard has one chunk.
void ChunkedTiles::count(KernelBuilder& b, Exchange& ex, Var counters, int64_t num_groups,
                         const std::function<Var(Var)>& first, Var chunks, Var row, int64_t programs_per_block,
                         const std::function<void(Var chunk)>& publish) const {
  const int64_t blocks_per_chunk = chunk_rows / block_rows;
  Var chunk = b.min(row / chunk_rows, chunks - 1), first_block = chunk * blocks_per_chunk;
  Var end_block = b.select(b.compare(Compare::eq, chunk, chunks - 1), row_blocks, first_block + blocks_per_chunk);
  Var all = (end_block - first_block) * programs_per_block;
  Var per_group = (b.size(counters, 0) - 1) / num_groups;
  Var place = first(per_group) + chunk + 1;
  Var before = b.cast(b.atomic("add", counters, {place}, 1), DType::i64);
  b.when(b.compare(Compare::eq, before, all - 1), [&] {
    b.store_scalar(counters, {place}, 0);
    b.when(ex.is_aborted(), nullptr, [&] { publish(chunk); });
  });
}

}  // namespace seqtile::kernels::seqpar
