// kernels/seqpar/exchange/reduction.cpp -- see reduction.h.
// SPDX-License-Identifier: Apache-2.0
//
// Programs, in order: the tiles of the rows that rank + 1 owns, of those of rank + 2, ..., the own ones last, so that
// nobody waits for long, and each of them adds what peers have sent for it; or all tiles, column by column, and then
// programs that sum up. In two shots those that take over other ranks' sums; one that awaits the rest. Whoever
// completes a chunk of rows, which is counted, publishes it; where tiles are joined, all chunks are complete with the
// last tile. The bits of a sum depend on the order of k within a tile and on nothing else.
#include "kernels/seqpar/exchange/reduction.h"

#include <algorithm>

#include "jit/base/cdiv.h"
#include "seqtile/abi.h"
#include "seqtile/error.h"
#include "seqtile/kernel.h"

namespace seqtile::kernels::seqpar {

namespace {

constexpr int64_t kSumElements = 2048;            ///< of a tile of sums
constexpr int64_t kFirstCounter = 1;              ///< before it: the programs that have ended
constexpr int64_t kMostOneShotBytes = 512 << 10;  ///< that a rank sends to each other

ReduceOrder reduce_order(const std::string& name) {
  return name == "interleave" ? ReduceOrder::interleave : name == "join" ? ReduceOrder::join : ReduceOrder::rotate;
}

int64_t spans_per_row_block(const PartialShape& shape, const ReduceSchedule& schedule) {
  return cdiv(shape.block_rows, schedule.sum_rows);
}

}  // namespace

ReduceForm reduce_form(const autotune::Config& config) {
  const std::string form = config.get_string("reduction", "");
  return form.empty() ? ReduceForm::scatter : form == "one_shot" ? ReduceForm::one_shot : ReduceForm::two_shot;
}

ReduceSchedule ReduceSchedule::from(const autotune::Config& c) {
  return {c.get_int("chunk_rows"), c.get_int("sum_rows", 1), reduce_order(c.get_string("order", ""))};
}

const Protocol& protocol_of(ReduceForm form) {
  return form == ReduceForm::scatter    ? reduce_scatter_protocol()
         : form == ReduceForm::two_shot ? two_shot_protocol()
                                        : gather_protocol();
}

Reduction::Reduction(KernelBuilder& b, Exchange& ex, const PartialShape& shape, const ReduceSchedule& schedule,
                     ReduceForm form, const ReduceBody& body, int phase)
    : b_(b),
      ex_(ex),
      s_(shape),
      schedule_(schedule),
      form_(form),
      world_size_(ex.world_size()),
      body_(body),
      counters_(ex.counters()),
      length_(ex.length()),
      phase_(phase),
      row_blocks_(b.cdiv(length_, num_groups() * shape.block_rows)),
      spans_(row_blocks_ * spans_per_row_block(shape, schedule)) {
  if (is_joined() && is_one_shot())
    throw Error(ErrorCode::invalid_argument, "order = join: not in one shot; leave it out");
}

Var Reduction::num_partials() {
  return is_joined() ? joined_row_blocks() * s_.column_blocks : row_blocks_ * (num_turns() * s_.column_blocks);
}
Var Reduction::joined_row_blocks() { return b_.cdiv(length_, s_.block_rows); }
Var Reduction::num_sums() { return is_apart() ? spans_ : row_blocks_ * s_.column_blocks; }
Var Reduction::num_uses() { return spans_ * int64_t{world_size_ - 1}; }

std::vector<Var> Reduction::outputs() {
  if (form_ != ReduceForm::scatter) return body_.outputs(b_.constant(DType::i64, int64_t{0}), length_);
  const Rows rows = rows_of(ex_.rank());
  return body_.outputs(rows.first, rows.end);
}

Reduction::Rows Reduction::rows_of(Var owner) {
  if (!is_one_shot()) return {ex_.first_row(owner), ex_.num_rows(owner)};
  // More rows than the staging has room for are not sent: the call is aborted.
  return {b_.constant(DType::i64, int64_t{0}), b_.select(length_ <= most_rows(), length_, 0)};
}

int64_t Reduction::most_rows() const { return most_one_shot_rows(s_.transport, s_.columns * s_.num_sums); }

// The columns of one of a gated pair's two sums.
Var Reduction::part(Var segment, Var end, size_t i) {
  return b_.slice(segment, {0, static_cast<int64_t>(i) * s_.columns}, {end, s_.columns});
}

ChunkedTiles::Place Reduction::place_of(Var id) {
  if (schedule_.order == ReduceOrder::interleave || is_one_shot())
    return {id % num_turns(), id / num_turns() % row_blocks_ * s_.block_rows, id / (row_blocks_ * num_turns())};
  return tiles().place_of(b_, id, s_.column_blocks);
}

void Reduction::produce(Var id) {
  if (is_joined()) return produce_joined(id);
  const auto [turn, row, column_block] = place_of(id);
  Var owner = ex_.peer(turn);
  const Rows rows = rows_of(owner);
  b_.when(row < rows.end, [&, row = row, column_block = column_block] {
    const ReduceBody::Tile tile = body_.partial(rows.first, rows.end, row, column_block);
    const auto send = [&](Var to) { put(tile, ex_.target(phase_, to, rows.end), rows.end, row); };
    if (is_one_shot()) for_each(num_receivers(), send);
    else send(owner);
  });
  Var group = is_one_shot() ? b_.constant(DType::i64, int64_t{0}) : owner;
  publish_if_last(0, group, row, s_.column_blocks, [&](Var chunk) {
    if (is_one_shot()) for_each(num_receivers(), [&](Var peer) { ex_.publish(phase_, peer, chunk); });
    else ex_.publish(phase_, owner, chunk);
  });
}

// Each owner gets the rows that it has of the tile; those before and behind them are out of its segment's range.
void Reduction::produce_joined(Var id) {
  Var blocks = joined_row_blocks(), row = id % blocks * s_.block_rows;
  const ReduceBody::Tile tile = body_.partial(b_.constant(DType::i64, int64_t{0}), length_, row, id / blocks);
  for_each(num_receivers(), [&](Var owner) {
    const Rows rows = rows_of(owner);
    put(tile, ex_.target(phase_, owner, rows.end), rows.end, row - rows.first);
  });
  publish_if_all_are_there();
}

// Few rows are complete together.
void Reduction::publish_if_all_are_there() {
  Var before = b_.cast(b_.atomic("add", counters_, {kFirstCounter}, 1), DType::i64);
  b_.when(b_.compare(Compare::eq, before, num_partials() - 1), [&] {
    b_.store_scalar(counters_, {kFirstCounter}, 0);
    b_.when(ex_.is_aborted(), nullptr, [&] {
      for_each(num_receivers(), [&](Var owner) {
        b_.for_each(0, ex_.num_chunks(phase_, owner, ex_.rank()), 1,
                    [&](Var chunk) { ex_.publish(phase_, owner, chunk); });
      });
    });
  });
}

void Reduction::put(const ReduceBody::Tile& tile, Var segment, Var end, Var row) {
  for (size_t i = 0; i < tile.sums.size(); ++i)
    b_.store(part(segment, end, i), {row, tile.column}, to_storage(b_, tile.sums[i], s_.transport));
}

void Reduction::for_each(int64_t peers, const std::function<void(Var peer)>& body) {
  b_.for_each(0, peers, 1, [&](Var i) { body(ex_.peer(i)); });
}

void Reduction::sum(Var id) { is_apart() ? sum_up(id) : finish_tile(id); }

// A tile of the own rows, with what peers have computed for it.
void Reduction::finish_tile(Var id) {
  const Rows rows = rows_of(ex_.rank());
  const ChunkedTiles::Place place = place_of(id);
  b_.when(place.row < rows.end, [&] {
    ReduceBody::Tile tile = body_.partial(rows.first, rows.end, place.row, place.column_block);
    b_.when(await_all({place.row, rows.end}, id), [&] {
      if (s_.fills_registers) return sum_in_parts(rows, place.row, tile);
      give(rows, rows.end, place.row, tile.column, sums_with(tile, rows.end, place.row));
    });
  });
  publish_sums(place.row, s_.column_blocks);
}

// By way of the own segment, where peers' segments are; then no more rows than there is room for at a time.
void Reduction::sum_in_parts(const Rows& rows, Var row, const ReduceBody::Tile& tile) {
  constexpr int64_t kParts = 4;
  put(tile, ex_.source(phase_, ex_.rank(), rows.end), rows.end, row);
  const std::array<int64_t, 2> size{s_.block_rows / kParts, tile.sums[0].type().dims()[1]};
  b_.for_each(0, s_.block_rows, size[0], [&](Var i) {
    give(rows, rows.end, row + i, tile.column, sums_of(rows.end, row + i, tile.column, size));
  });
}

// Over all ranks, in their order, with the own partial results that are at hand.
std::vector<Var> Reduction::sums_with(const ReduceBody::Tile& own, Var end, Var row) {
  std::vector<Var> sums;
  for (int64_t source = 0; source < world_size_; ++source) {
    // A rank has sent nothing to itself: another one's is read instead and not used.
    Var is_own = b_.compare(Compare::eq, ex_.rank(), source);
    for (size_t i = 0; i < own.sums.size(); ++i) {
      Var term = to_f32(b_, to_storage(b_, own.sums[i], s_.transport));
      if (world_size_ > 1) {
        Var from = part(
            ex_.source(phase_, b_.select(is_own, ex_.peer(b_.constant(DType::i64, int64_t{0})), source), end), end, i);
        const auto size = term.type().dims();
        term = b_.select(is_own, term, to_f32(b_, b_.load(from, {row, own.column}, {size[0], size[1]})));
      }
      if (source == 0) sums.push_back(term);
      else sums[i] = sums[i] + term;
    }
  }
  return sums;
}

// The result of such sums, to the output and in two shots to all peers. `end`: of the rows that are summed up.
void Reduction::give(const Rows& rows, Var end, Var row, Var column, std::vector<Var> sums) {
  Var value = body_.result(rows.first, end, row, column, std::move(sums));
  b_.store(body_.outputs(rows.first, end)[0], {row, column}, value);
  for (int64_t i = 0; form_ == ReduceForm::two_shot && i < world_size_ - 1; ++i)
    b_.store(ex_.target(phase_ + 1, ex_.peer(b_.constant(DType::i64, i)), end), {row, column}, value);
}

void Reduction::publish_sums(Var row, int64_t programs_per_block) {
  if (form_ != ReduceForm::two_shot) return;
  publish_if_last(1, ex_.rank(), row, programs_per_block, [&](Var chunk) {
    for_each(world_size_ - 1, [&](Var peer) { ex_.publish(phase_ + 1, peer, chunk); });
  });
}

// Counters of the partial results of each group, then those of the sums.
void Reduction::publish_if_last(int phase, Var group, Var row, int64_t programs_per_block,
                                const std::function<void(Var chunk)>& publish) {
  Var chunks = ex_.num_chunks(phase_ + phase, group, ex_.rank());
  const auto first = [&](Var per_group) { return phase == 0 ? group * per_group : per_group * num_groups(); };
  tiles().count(b_, ex_, counters_, num_groups() + (form_ == ReduceForm::two_shot ? 1 : 0), first, chunks, row,
                programs_per_block, publish);
}

// A call without rows has no tiles whose chunks could be published.
void Reduction::finish() {
  b_.when(length_ <= 0, [&] {
    b_.when(ex_.is_aborted(), nullptr, [&] {
      for (int phase = 0; phase <= (form_ == ReduceForm::two_shot ? 1 : 0); ++phase)
        for_each(world_size_ - 1,
                 [&](Var peer) { ex_.publish(phase_ + phase, peer, b_.constant(DType::i64, int64_t{0})); });
    });
  });
  if (is_one_shot()) ex_.refuse_above(most_rows());
}

// Of a program that sums up apart or takes over.
Reduction::Span Reduction::span_of(Var id, Var rows) {
  const int64_t parts = spans_per_row_block(s_, schedule_);
  Var block = id / parts * s_.block_rows, row = block + id % parts * schedule_.sum_rows;
  return {row, b_.min(rows, block + s_.block_rows)};
}
Var Reduction::first_chunk(const Span& span) { return span.row / schedule_.chunk_rows; }
Var Reduction::end_chunk(const Span& span, int64_t rows) {
  return b_.cdiv(b_.min(span.row + rows, span.end), schedule_.chunk_rows);
}

// i1: what all senders have computed for these rows is there.
Var Reduction::await_all(const Span& span, Var id) {
  const int64_t rows = is_apart() ? schedule_.sum_rows : s_.block_rows;
  return in_turn(b_, 0, num_receivers(), span.row < span.end,
                 [&](Var i) { return ex_.await(phase_, ex_.peer(i), first_chunk(span), end_chunk(span, rows), id); });
}

void Reduction::sum_up(Var id) {
  const Rows rows = rows_of(ex_.rank());
  const Span span = span_of(id, rows.end);
  b_.when(await_all(span, id), [&] {
    b_.for_each(0, s_.columns, columns_of_sums(), [&](Var column) {
      const std::array<int64_t, 2> size{schedule_.sum_rows, columns_of_sums()};
      give(rows, span.end, span.row, column, sums_of(span.end, span.row, column, size));
    });
    finish_rows(rows, span);
  });
  publish_sums(span.row, spans_per_row_block(s_, schedule_));
}

// Of a tile of sums; few rows leave room for long pieces of them.
int64_t Reduction::columns_of_sums() const { return std::max<int64_t>(kSumElements / schedule_.sum_rows, 256); }

// Over all ranks, in their order.
std::vector<Var> Reduction::sums_of(Var end, Var row, Var column, const std::array<int64_t, 2>& size) {
  const std::vector<Var> zeros(static_cast<size_t>(s_.num_sums), b_.full({size[0], size[1]}, 0.0));
  return b_.for_loop(0, world_size_, 1, zeros, [&](Var source, std::vector<Var> before) {
    Var from = ex_.source(phase_, source, end);
    for (size_t i = 0; i < before.size(); ++i)
      before[i] = before[i] + to_f32(b_, b_.load(part(from, end, i), {row, column}, {size[0], size[1]}));
    return before;
  });
}

void Reduction::take_over(Var id) {
  Var source = ex_.peer(id / spans_);
  const Rows rows = rows_of(source);
  const Span span = span_of(id % spans_, rows.end);
  b_.when(span.row < span.end, [&] {
    b_.when(ex_.await(phase_ + 1, source, first_chunk(span), end_chunk(span, schedule_.sum_rows), id), [&] {
      Var from = ex_.source(phase_ + 1, source, span.end), y = body_.outputs(rows.first, span.end)[0];
      b_.for_each(0, s_.columns, columns_of_sums(), [&](Var column) {
        b_.store(y, {span.row, column}, b_.load(from, {span.row, column}, {schedule_.sum_rows, columns_of_sums()}));
      });
      finish_rows(rows, span);
    });
  });
}

void Reduction::finish_rows(const Rows& rows, const Span& span) {
  if (body_.finish_rows) body_.finish_rows(rows.first, span.end, span.row, schedule_.sum_rows);
}

int64_t most_one_shot_rows(DType transport, int64_t columns) {
  return std::max<int64_t>(1, kMostOneShotBytes / (columns * dtype_bytes(transport)));
}

ExchangeShape reduce_shape(const PartialShape& shape, ReduceForm form, int world_size, int64_t chunk_rows) {
  using Rows = PhaseShape::Rows;
  const int64_t columns = shape.columns * shape.num_sums;
  const PhaseShape partials{Rows::of_owner, shape.transport, columns, chunk_rows};
  if (form == ReduceForm::scatter) return {world_size, 0, {partials}};
  const PhaseShape sums{Rows::of_source, shape.result, shape.columns, chunk_rows};
  const PhaseShape few_rows{Rows::all, shape.transport, columns, chunk_rows,
                            most_one_shot_rows(shape.transport, columns)};
  return {world_size, 0, {partials, sums, few_rows}, form == ReduceForm::two_shot ? 0 : kOneShotPhase};
}

autotune::SizeExpr num_counters(const ReduceSchedule& schedule, ReduceForm form, int world_size) {
  const int64_t groups = form == ReduceForm::one_shot ? 1 : world_size;
  return {groups + (form == ReduceForm::two_shot ? 1 : 0), {{0, groups * schedule.chunk_rows}}, kFirstCounter};
}

// Joined tiles are no more than those of each rank.
autotune::SizeExpr reduce_programs(const PartialShape& shape, const ReduceSchedule& schedule, ReduceForm form,
                                   int world_size) {
  const int64_t groups = form == ReduceForm::one_shot ? 1 : world_size;
  const int64_t spans =
      (sums_apart(shape, schedule, form) ? 1 : 0) + (form == ReduceForm::two_shot ? world_size - 1 : 0);
  return {
      groups * shape.column_blocks + spans * spans_per_row_block(shape, schedule), {{0, groups * shape.block_rows}}, 1};
}

void build_reduction(KernelBuilder& b, Exchange& ex, const PartialShape& shape, const ReduceSchedule& schedule,
                     ReduceForm form, const ReduceBody& body) {
  Reduction reduction(b, ex, shape, schedule, form, body);
  const bool is_one_shot = form == ReduceForm::one_shot;
  const auto finish = [&] {
    reduction.finish();
    ex.last_role();
  };
  const auto behind_sums = [&](Var id) {
    if (form != ReduceForm::two_shot) return b.when(b.compare(Compare::eq, id, 0), finish);
    Var uses = reduction.num_uses();
    b.when(
        id < uses, [&] { ex.role("use", [&] { reduction.take_over(id); }); },
        [&] { b.when(b.compare(Compare::eq, id, uses), finish); });
  };
  Var id = b.program_id(0), sent = reduction.num_partials(), sums = reduction.num_sums();
  b.when(
      id < sent, [&] { ex.role(is_one_shot ? "push" : "produce", [&] { reduction.produce(id); }); },
      [&] {
        Var sum = id - sent;
        b.when(
            sum < sums, [&] { ex.role(is_one_shot ? "use" : "sum", [&] { reduction.sum(sum); }); },
            [&] { behind_sums(sum - sums); });
      });
  ex.leave(reduction.outputs());
}

}  // namespace seqtile::kernels::seqpar
