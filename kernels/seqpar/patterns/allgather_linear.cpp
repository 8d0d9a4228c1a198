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

std::vector<autotune::Config> gather_schedules(const autotune::Config& tiles, const Target& target, int world_size,
                                               int threads) {
  return transfer_schedules(tiles, {"rotate", "interleave", "serial"}, push_programs(target, threads),
                            may_pull(target, world_size));
}

namespace {

/// That tiles are cut from: those of each rank, or one.
int64_t groups_of_rows(const GatherSchedule& schedule, int world_size) {
  return schedule.transfer.way == Transfer::join ? 1 : world_size;
}

}  // namespace

GatheredProduct::GatheredProduct(KernelBuilder& b, Exchange& ex, const Linear& shape, const linear_op::Tile& tile,
                                 const GatherSchedule& schedule, int world_size, linear_op::Operands operands,
                                 Var length)
    : b_(b),
      ex_(ex),
      s_(shape),
      t_(tile),
      schedule_(schedule),
      world_size_(world_size),
      v_(std::move(operands)),
      row_blocks_(b.cdiv(length, num_turns() * tile.block_m)) {}

bool GatheredProduct::is_joined() const { return schedule_.transfer.way == Transfer::join; }
int64_t GatheredProduct::num_turns() const { return groups_of_rows(schedule_, world_size_); }

Var GatheredProduct::num_tiles() { return row_blocks_ * (num_turns() * linear_op::column_blocks(s_, t_.block_n)); }

void GatheredProduct::push(Var program) {
  push_rows(b_, ex_, is_joined() ? world_size_ : world_size_ - 1, program, schedule_.transfer, [&](Var) {
    return std::vector{Part{b_.slice(v_.x, {0, 0}, {ex_.num_rows(ex_.rank()), s_.k})}};
  });
}

void GatheredProduct::compute(Var tile) { is_joined() ? compute_joined(tile) : compute_of_rank(tile); }

void GatheredProduct::compute_joined(Var tile) {
  linear_op::Operands v = v_;
  Var row = tile % row_blocks_ * t_.block_m, column = v.choose(b_, s_, tile / row_blocks_, t_.block_n);
  b_.when(await_rows_of_all(b_, ex_, world_size_, tile), [&] {
    v.x = ex_.all_rows(0);
    linear_op::store_result(b_, s_, v, row, column, linear_op::multiply(b_, s_, t_, v, row, column));
  });
}

void GatheredProduct::compute_of_rank(Var tile) {
  // Of the tiles of one rank, those of one block of columns follow each other: its weights stay in the cache.
  const int64_t columns = linear_op::column_blocks(s_, t_.block_n);
  Var turn, row_block, column_block;
  if (schedule_.is_interleaved) {
    turn = tile % world_size_;
    row_block = tile / world_size_ % row_blocks_;
    column_block = tile / (row_blocks_ * world_size_);
  } else {
    turn = tile / (row_blocks_ * columns);
    row_block = tile % row_blocks_;
    column_block = tile / row_blocks_ % columns;
  }
  linear_op::Operands v = v_;
  Var source = (ex_.rank() + turn) % world_size_, rows = ex_.num_rows(source), row = row_block * t_.block_m;
  Var is_own = b_.compare(Compare::eq, turn, 0);
  Var column = v.choose(b_, s_, column_block, t_.block_n);
  Var good;
  if (schedule_.transfer.is_serial) {
    good = await_rows_of_all(b_, ex_, world_size_ - 1, tile);
  } else {
    Var first = row / schedule_.transfer.chunk_rows;
    Var last = b_.cdiv(b_.min(row + t_.block_m, rows), schedule_.transfer.chunk_rows);
    good = ex_.await(0, source, first, b_.select(is_own, first, last), tile);
  }
  b_.when(b_.logical_and(good, row < rows), [&] {
    v.x = b_.select(is_own, b_.slice(v.x, {0, 0}, {rows, s_.k}), ex_.source(0, source, rows));
    const std::vector<Var> sums = linear_op::multiply(b_, s_, t_, v, row, column);
    Var owner = (ex_.rank() + turn) % world_size_;  // again, as is all that would be kept beside the sums
    for (Var* view : {&v.y[0], &v.residual})
      if (view->value()) *view = b_.slice(*view, {ex_.first_row(owner), 0}, {ex_.num_rows(owner), b_.size(*view, 1)});
    linear_op::store_result(b_, s_, v, row, column, sums);
  });
}

ExchangeShape gather_shape(const Linear& shape, int world_size, int64_t identity, int64_t chunk_rows) {
  return {world_size, identity, {{PhaseShape::Rows::of_source, shape.dtype, shape.k, chunk_rows}}};
}

autotune::SizeExpr gather_programs(const Linear& shape, const linear_op::Tile& tile, const GatherSchedule& schedule,
                                   int world_size) {
  const int64_t turns = groups_of_rows(schedule, world_size);
  return {turns * linear_op::column_blocks(shape, tile.block_n),
          {{0, turns * tile.block_m}},
          schedule.transfer.push_programs + 1};
}

void build_allgather_linear(KernelBuilder& b, const Linear& shape, const linear_op::Tile& tile,
                            const GatherSchedule& schedule, int world_size, int64_t identity) {
  const linear_op::Operands v(shape, views_of(shape, b));
  const ChannelViews channel = declare_channel(b);
  const TransferSchedule& transfer = schedule.transfer;
  const ExchangeShape exchange =
      with_transfer(gather_shape(shape, world_size, identity, transfer.chunk_rows), transfer.way);
  Exchange ex(b, protocol_of_gather(transfer.way), exchange, channel.block, channel.counters, channel.op_id,
              b.size(v.y[0], 0));
  Var length = b.size(v.y[0], 0), id = b.program_id(0);
  GatheredProduct product(b, ex, shape, tile, schedule, world_size, v, length);
  Var tiles = product.num_tiles(), use = id - transfer.push_programs;
  b.when(
      id < transfer.push_programs, [&] { ex.role("push", [&] { product.push(id); }); },
      [&] {
        b.when(
            use < tiles, [&] { ex.role("use", [&] { product.compute(use); }); },
            [&] { b.when(b.compare(Compare::eq, use, tiles), [&] { ex.last_role(); }); });
      });
  ex.leave(v.y);
}

}  // namespace seqtile::kernels::seqpar
