// kernels/seqpar/linear_reducescatter.cpp -- see linear_reducescatter.h.
// SPDX-License-Identifier: Apache-2.0
//
// Programs, in order: the tiles of the rows that rank + 1 owns, of those of rank + 2, ..., the own ones last, so that
// nobody waits for long; those that sum up own rows, from rank 0 on, in f32; one that awaits the rest. A partial sum
// goes to its owner's staging, that of the own rows too; whoever writes the last tile of a chunk of rows, counted,
// publishes the chunk. The bits of y depend on the order of k within a tile and on nothing else.
#include "kernels/seqpar/linear_reducescatter.h"

#include <algorithm>

#include "kernels/linear_tile.h"
#include "kernels/row_kernel.h"
#include "kernels/seqpar/channel_args.h"

namespace seqtile::kernels::seqpar {

namespace {

constexpr int64_t kSumColumns = 256;
constexpr int64_t kFirstCounter = 1;  ///< before it: the programs that have ended

int64_t sums_per_row_block(const linear_op::Tile& tile, const ReduceSchedule& schedule) {
  return (tile.block_m + schedule.sum_rows - 1) / schedule.sum_rows;
}

class Builder {
 public:
  Builder(KernelBuilder& b, const linear_op::Shape& shape, const linear_op::Tile& tile, const ReduceSchedule& schedule,
          int world_size, DType transport, int64_t identity)
      : b_(b),
        s_(shape),
        t_(tile),
        schedule_(schedule),
        world_size_(world_size),
        transport_(transport),
        v_(b, shape),
        channel_(declare_channel(b)),
        ex_(b, reduce_scatter_protocol(), reduce_shape(shape, world_size, identity, transport, schedule.chunk_rows),
            channel_.block, channel_.counters, channel_.number, b.size(v_.x, 0)) {}

  void build() {
    Var length = b_.size(v_.x, 0), id = b_.program_id(0);
    row_blocks_ = b_.cdiv(length, int64_t{world_size_} * t_.block_m);
    Var tiles = row_blocks_ * (world_size_ * linear_op::column_blocks(s_, t_.block_n));
    Var sums = row_blocks_ * sums_per_row_block(t_, schedule_);
    b_.when(
        id < tiles, [&] { ex_.role("produce", [&] { produce(id); }); },
        [&] {
          Var sum = id - tiles;
          b_.when(
              sum < sums, [&] { ex_.role("sum", [&] { sum_up(sum); }); },
              [&] { b_.when(b_.compare(Compare::eq, sum, sums), [&] { finish(length); }); });
        });
    ex_.leave({v_.y[0]});
  }

 private:
  void produce(Var tile) {
    const int64_t columns = linear_op::column_blocks(s_, t_.block_n);
    Var owner = ex_.peer(tile / (row_blocks_ * columns));
    Var row_block = tile / columns % row_blocks_, column = tile % columns * t_.block_n;
    Var rows = ex_.num_rows(owner), row = row_block * t_.block_m;
    Var to = ex_.target(0, owner, rows);
    b_.when(row < rows, [&] {
      linear_op::Operands v = v_;
      v.x = b_.slice(v_.x, {ex_.first_row(owner), 0}, {rows, s_.k});
      const std::vector<Var> sums = linear_op::multiply(b_, s_, t_, v, row, column);
      for (size_t i = 0; i < sums.size(); ++i)
        b_.store(part(to, rows, i), {row, column}, to_storage(b_, sums[i], transport_));
    });
    publish_if_last(owner, row);
  }

  /// The columns of one of a gated pair's two sums.
  Var part(Var segment, Var rows, size_t i) {
    return b_.slice(segment, {0, static_cast<int64_t>(i) * s_.n[0]}, {rows, s_.n[0]});
  }

  // Tiles beyond the rows count too, so that every chunk waits for the same number; an empty shard has one chunk.
  void publish_if_last(Var owner, Var row) {
    Var chunks = ex_.num_chunks(0, owner, ex_.rank());
    Var chunk = b_.min(row / schedule_.chunk_rows, chunks - 1);
    Var first_block = chunk * (schedule_.chunk_rows / t_.block_m);
    Var end_block = b_.select(b_.compare(Compare::eq, chunk, chunks - 1), row_blocks_,
                              first_block + schedule_.chunk_rows / t_.block_m);
    Var all = (end_block - first_block) * linear_op::column_blocks(s_, t_.block_n);
    Var counters = channel_.counters;
    Var place = owner * ((b_.size(counters, 0) - kFirstCounter) / world_size_) + chunk + kFirstCounter;
    Var before = b_.cast(b_.atomic("add", counters, {place}, 1), DType::i64);
    b_.when(b_.compare(Compare::eq, before, all - 1), [&] {
      b_.store_scalar(counters, {place}, 0);
      b_.when(ex_.is_aborted(), nullptr, [&] { ex_.publish(0, owner, chunk); });
    });
  }

  /// A call without rows has no tiles whose chunks could be published.
  void finish(Var length) {
    b_.when(b_.compare(Compare::eq, length, 0), [&] {
      b_.when(ex_.is_aborted(), nullptr, [&] {
        b_.for_each(0, world_size_ - 1, 1,
                    [&](Var i) { ex_.publish(0, ex_.peer(i), b_.constant(DType::i64, int64_t{0})); });
      });
    });
    ex_.last_role();
  }

  void sum_up(Var program) {
    Var row = program * schedule_.sum_rows, rows = ex_.num_rows(ex_.rank());
    Var first = row / schedule_.chunk_rows;
    Var last = b_.cdiv(b_.min(row + schedule_.sum_rows, rows), schedule_.chunk_rows);
    Var good = b_.for_loop(0, world_size_, 1, {row < rows}, [&](Var i, std::vector<Var> before) {
      return b_.if_then(
          before[0], [&] { return std::vector{ex_.await(0, ex_.peer(i), first, last, program)}; },
          [&] { return before; });
    })[0];
    b_.when(good, [&] {
      b_.for_each(0, s_.n[0], kSumColumns,
                  [&](Var column) { linear_op::store_result(b_, s_, v_, row, column, total(row, rows, column)); });
    });
  }

  /// Of all ranks, in their order.
  std::vector<Var> total(Var row, Var rows, Var column) {
    const std::vector<Var> zeros(static_cast<size_t>(s_.weights_per_loop()),
                                 b_.full({schedule_.sum_rows, kSumColumns}, 0.0));
    return b_.for_loop(0, world_size_, 1, zeros, [&](Var source, std::vector<Var> sums) {
      Var from = ex_.source(0, source, rows);
      for (size_t i = 0; i < sums.size(); ++i) {
        Var terms = b_.load(part(from, rows, i), {row, column}, {schedule_.sum_rows, kSumColumns});
        sums[i] = sums[i] + to_f32(b_, terms);
      }
      return sums;
    });
  }

  KernelBuilder& b_;
  const linear_op::Shape& s_;
  const linear_op::Tile& t_;
  const ReduceSchedule schedule_;
  const int world_size_;
  const DType transport_;
  linear_op::Operands v_;
  ChannelViews channel_;
  Exchange ex_;
  Var row_blocks_;
};

}  // namespace

ExchangeShape reduce_shape(const linear_op::Shape& shape, int world_size, int64_t identity, DType transport,
                           int64_t chunk_rows) {
  return {world_size,
          identity,
          {{PhaseShape::Rows::of_owner, transport, shape.n[0] * shape.weights_per_loop(), chunk_rows}}};
}

autotune::SizeExpr num_counters(const ReduceSchedule& schedule, int world_size) {
  return {world_size, {{0, world_size * schedule.chunk_rows}}, kFirstCounter};
}

autotune::SizeExpr reduce_programs(const linear_op::Shape& shape, const linear_op::Tile& tile,
                                   const ReduceSchedule& schedule, int world_size) {
  const int64_t tiles = world_size * linear_op::column_blocks(shape, tile.block_n);
  return {tiles + sums_per_row_block(tile, schedule), {{0, world_size * tile.block_m}}, 1};
}

void build_linear_reducescatter(KernelBuilder& b, const linear_op::Shape& shape, const linear_op::Tile& tile,
                                const ReduceSchedule& schedule, int world_size, DType transport, int64_t identity) {
  Builder(b, shape, tile, schedule, world_size, transport, identity).build();
}

}  // namespace seqtile::kernels::seqpar
