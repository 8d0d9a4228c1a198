// kernels/seqpar/patterns/allgather_linear.cpp -- see allgather_linear.h.
// SPDX-License-Identifier: Apache-2.0
//
// Programs, in order: those that send this rank's rows to its peers, chunk by chunk, so that the first chunk of every
// rank is early everywhere; the tiles, own rows first, then those of rank + 1, rank + 2, ...; one that awaits the rest.
// A tile belongs to the rows of one rank, so that it awaits one rank's chunks and its masks are those rows' end. Where
// ranks have few rows such tiles are small, and weights are read again for each rank: joined rows have tiles as linear
// has them, which await all ranks.
#include "kernels/seqpar/patterns/allgather_linear.h"

#include "kernels/seqpar/exchange/transfer.h"

namespace seqtile::kernels::seqpar {

GatherSchedule GatherSchedule::from(const autotune::Config& c) {
  return {TransferSchedule::from(c), c.get_string("order", "rotate") != "rotate"};
}

std::vector<autotune::Config> gather_schedules(const autotune::Config& tiles, const Setting& s, int world_size) {
  return transfer_schedules(tiles, {"rotate", "interleave", "serial"}, push_programs(s),
                            may_pull(s.target, world_size));
}

Var GatheredProduct::num_tiles() {
  return row_blocks * (schedule.num_groups(world_size) * linear_op::column_blocks(s, t.block_n));
}

void GatheredProduct::push(Var program) {
  push_rows(b, ex, schedule.is_joined() ? world_size : world_size - 1, program, schedule.transfer,
            [&](Var) { return std::vector{Part{rows_of(b, operands.x, 0, ex.num_rows(ex.rank()))}}; });
}

void GatheredProduct::compute(Var tile) { schedule.is_joined() ? compute_joined(tile) : compute_of_rank(tile); }

void GatheredProduct::compute_joined(Var tile) {
  linear_op::Operands v = operands;
  Var row = tile % row_blocks * t.block_m, column = v.choose(b, s, tile / row_blocks, t.block_n);
  b.when(await_rows_of_all(b, ex, world_size, tile), [&] {
    v.x = ex.all_rows(0);
    linear_op::store_result(b, s, v, row, column, linear_op::multiply(b, s, t, v, row, column));
  });
}

void GatheredProduct::compute_of_rank(Var tile) {
  // Of the tiles of one rank, those of one block of columns follow each other: its weights stay in the cache.
  const int64_t columns = linear_op::column_blocks(s, t.block_n);
  Var turn, row_block, column_block;
  if (schedule.is_interleaved) {
    turn = tile % world_size;
    row_block = tile / world_size % row_blocks;
    column_block = tile / (row_blocks * world_size);
  } else {
    turn = tile / (row_blocks * columns);
    row_block = tile % row_blocks;
    column_block = tile / row_blocks % columns;
  }
  linear_op::Operands v = operands;
  Var source = (ex.rank() + turn) % world_size, rows = ex.num_rows(source), row = row_block * t.block_m;
  Var is_own = b.compare(Compare::eq, turn, 0);
  Var column = v.choose(b, s, column_block, t.block_n);
  Var good;
  if (schedule.transfer.is_serial) {
    good = await_rows_of_all(b, ex, world_size - 1, tile);
  } else {
    Var first = row / schedule.transfer.chunk_rows;
    Var last = b.cdiv(b.min(row + t.block_m, rows), schedule.transfer.chunk_rows);
    good = ex.await(0, source, first, b.select(is_own, first, last), tile);
  }
  b.when(b.logical_and(good, row < rows), [&] {
    v.x = b.select(is_own, b.slice(v.x, {0, 0}, {rows, s.k}), ex.source(0, source, rows));
    const std::vector<Var> sums = linear_op::multiply(b, s, t, v, row, column);
    Var owner = (ex.rank() + turn) % world_size;  // again, as is all that would be kept beside the sums
    for (Var* view : {&v.y[0], &v.residual})
      if (view->value()) *view = b.slice(*view, {ex.first_row(owner), 0}, {ex.num_rows(owner), b.size(*view, 1)});
    linear_op::store_result(b, s, v, row, column, sums);
  });
}

ExchangeShape gather_shape(const Linear& shape, int world_size, int64_t chunk_rows) {
  return {world_size, 0, {{PhaseShape::Rows::of_source, shape.dtype, shape.k, chunk_rows}}};
}

autotune::SizeExpr gather_programs(const Linear& shape, const linear_op::Tile& tile, const GatherSchedule& schedule,
                                   int world_size) {
  const int64_t groups = schedule.num_groups(world_size), column_blocks = linear_op::column_blocks(shape, tile.block_n);
  return {groups * column_blocks, {{0, groups * tile.block_m}}, schedule.transfer.push_programs + 1};
}

void build_allgather_linear(KernelBuilder& b, const Linear& shape, const linear_op::Tile& tile,
                            const GatherSchedule& schedule, const ExchangeShape& exchange) {
  const linear_op::Operands v(shape, views_of(shape, b));
  const ChannelViews channel = declare_channel(b);
  const TransferSchedule& transfer = schedule.transfer;
  Exchange ex(b, protocol_of_gather(transfer.way), exchange, channel, b.size(v.y[0], 0));
  Var length = b.size(v.y[0], 0), id = b.program_id(0);
  GatheredProduct product{b, ex, shape, tile, schedule, v, length};
  Var tiles = product.num_tiles(), use = id - transfer.push_programs;
  run_program(b, ex, id, {"push", transfer.push_programs, [&](Var i) { product.push(i); }}, use,
              {"use", tiles, [&](Var i) { product.compute(i); }});
  ex.leave(v.y);
}

}  // namespace seqtile::kernels::seqpar
