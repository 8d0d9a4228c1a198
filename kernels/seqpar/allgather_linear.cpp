// kernels/seqpar/allgather_linear.cpp -- see allgather_linear.h.
// SPDX-License-Identifier: Apache-2.0
//
// Programs, in order: those that push this rank's rows to its peers, chunk by chunk, so that the first chunk of every
// rank is early everywhere; the tiles, own rows first, then those of rank + 1, rank + 2, ...; one that awaits the rest.
// A tile belongs to the rows of one rank, so that it awaits one rank's chunks and its masks are those rows' end.
#include "kernels/seqpar/allgather_linear.h"

#include "kernels/seqpar/transfer.h"

namespace seqtile::kernels::seqpar {

GatherOrder gather_order(const autotune::Config& config) {
  const std::string order = config.get_string("order");
  return order == "serial"       ? GatherOrder::serial
         : order == "interleave" ? GatherOrder::interleave
                                 : GatherOrder::rotate;
}

std::vector<autotune::Config> gather_schedules(const autotune::Config& tiles, const std::vector<int64_t>& programs) {
  std::vector<autotune::Config> configs;
  for (const int64_t count : programs)
    for (const char* order : {"rotate", "interleave", "serial"})
      for (const int64_t chunk_rows : {256, 64}) {
        if (chunk_rows == 64 && order == std::string("serial")) continue;  // who waits for all needs no small chunks
        autotune::Config config = tiles;
        config.set("chunk_rows", chunk_rows);
        config.set("push_programs", count);
        config.set("order", std::string(order));
        configs.push_back(std::move(config));
      }
  return configs;
}

GatheredProduct::GatheredProduct(KernelBuilder& b, Exchange& ex, const linear_op::Shape& shape,
                                 const linear_op::Tile& tile, const GatherSchedule& schedule, int world_size,
                                 linear_op::Operands operands, Var length)
    : b_(b),
      ex_(ex),
      s_(shape),
      t_(tile),
      schedule_(schedule),
      world_size_(world_size),
      v_(std::move(operands)),
      row_blocks_(b.cdiv(length, int64_t{world_size} * tile.block_m)) {}

Var GatheredProduct::num_tiles() { return row_blocks_ * (world_size_ * linear_op::column_blocks(s_, t_.block_n)); }

void GatheredProduct::push(Var program) {
  push_rows(b_, ex_, world_size_ - 1, program, {schedule_.chunk_rows, schedule_.push_programs}, [&](Var) {
    return std::vector{Part{b_.slice(v_.x, {0, 0}, {ex_.num_rows(ex_.rank()), s_.k})}};
  });
}

/// i1: all chunks of all peers have come.
Var GatheredProduct::await_rows_of_all(Var tile) {
  Var good = b_.compare(Compare::eq, tile, tile), none = b_.constant(DType::i64, int64_t{0});
  return b_.for_loop(0, world_size_ - 1, 1, {good}, [&](Var i, std::vector<Var> before) {
    Var source = ex_.peer(i);
    Var come = ex_.await(0, source, none, ex_.num_chunks(0, ex_.rank(), source), tile);
    return std::vector{b_.logical_and(before[0], come)};
  })[0];
}

void GatheredProduct::compute(Var tile) {
  // Of the tiles of one rank, those of one block of columns follow each other: its weights stay in the cache.
  const int64_t columns = linear_op::column_blocks(s_, t_.block_n);
  Var turn, row_block, column_block;
  if (schedule_.order != GatherOrder::rotate) {
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
  if (schedule_.order == GatherOrder::serial) {
    good = await_rows_of_all(tile);
  } else {
    Var first = row / schedule_.chunk_rows;
    Var last = b_.cdiv(b_.min(row + t_.block_m, rows), schedule_.chunk_rows);
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

ExchangeShape gather_shape(const linear_op::Shape& shape, int world_size, int64_t identity, int64_t chunk_rows) {
  return {world_size, identity, {{PhaseShape::Rows::of_source, shape.dtype, shape.k, chunk_rows}}};
}

autotune::SizeExpr gather_programs(const linear_op::Shape& shape, const linear_op::Tile& tile,
                                   const GatherSchedule& schedule, int world_size) {
  return {world_size * linear_op::column_blocks(shape, tile.block_n),
          {{0, world_size * tile.block_m}},
          schedule.push_programs + 1};
}

void build_allgather_linear(KernelBuilder& b, const linear_op::Shape& shape, const linear_op::Tile& tile,
                            const GatherSchedule& schedule, int world_size, int64_t identity) {
  const linear_op::Operands v(b, shape);
  const ChannelViews channel = declare_channel(b);
  Exchange ex(b, gather_protocol(), gather_shape(shape, world_size, identity, schedule.chunk_rows), channel.block,
              channel.counters, channel.number, b.size(v.y[0], 0));
  Var length = b.size(v.y[0], 0), id = b.program_id(0);
  GatheredProduct product(b, ex, shape, tile, schedule, world_size, v, length);
  Var tiles = product.num_tiles(), use = id - schedule.push_programs;
  b.when(
      id < schedule.push_programs, [&] { ex.role("push", [&] { product.push(id); }); },
      [&] {
        b.when(
            use < tiles, [&] { ex.role("use", [&] { product.compute(use); }); },
            [&] { b.when(b.compare(Compare::eq, use, tiles), [&] { ex.last_role(); }); });
      });
  ex.leave(v.y);
}

}  // namespace seqtile::kernels::seqpar
