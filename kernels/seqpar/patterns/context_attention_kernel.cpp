// kernels/seqpar/patterns/context_attention_kernel.cpp -- see context_attention_kernel.h.
// SPDX-License-Identifier: Apache-2.0
//
// Programs, in order: those that send this rank's keys and values to its peers, chunk by chunk; the tiles of queries,
// which await a peer's chunk when they come to it; one that awaits the rest, also what causality hides from everyone
// here. Keys beyond a rank's rows are left out by the bounds of its view: they are not multiplied by zero.
#include "kernels/seqpar/patterns/context_attention_kernel.h"

#include "kernels/seqpar/exchange/channel_args.h"
#include "kernels/seqpar/exchange/chunked_tiles.h"
#include "kernels/seqpar/exchange/row_layout.h"
#include "kernels/seqpar/patterns/sequence_rows.h"
#include "seqtile/kernel.h"

namespace seqtile::kernels::seqpar {

using attention::Keys;
using attention::Running;

namespace {

struct Operands {
  Operands(KernelBuilder& b, const ContextShape& s) {
    const int64_t columns = s.attention.heads * s.attention.head_dim;
    const int64_t kv_columns = s.attention.kv_heads * s.attention.head_dim;
    q = b.view("q", s.dtype, {kDynamic, columns});
    k = b.view("k", s.dtype, {kDynamic, kv_columns});
    v = b.view("v", s.dtype, {kDynamic, kv_columns});
    out = b.view("out", s.dtype, {kDynamic, columns});
    if (s.has_lse) lse = b.view("lse", DType::f32, {kDynamic, s.attention.heads});
    sequence = b.view("sequence", DType::i8, {kDynamic});
  }
  Var q, k, v, out, lse, sequence;
};

class Builder {
 public:
  Builder(KernelBuilder& b, const ContextShape& shape, const ContextSchedule& schedule)
      : b_(b),
        s_(shape),
        a_(shape.attention),
        schedule_(schedule),
        v_(b, shape),
        channel_(declare_channel(b)),
        length_(b.size(v_.sequence, 0)),
        rows_(b, shape.layout, shape.world_size, length_),
        ex_(b, protocol_of_gather(schedule_.transfer.way), exchange(), channel_.block, channel_.counters,
            channel_.op_id, length_) {
    check_chunk(schedule.transfer.chunk_rows, schedule.block_n);
  }

  void build() {
    Var row_blocks = b_.cdiv(length_, s_.world_size * schedule_.block_m);
    Var id = b_.program_id(0), tiles = row_blocks * a_.heads, tile = id - schedule_.transfer.push_programs;
    b_.when(
        id < schedule_.transfer.push_programs, [&] { ex_.role("push", [&] { push(id); }); },
        [&] {
          b_.when(
              tile < tiles, [&] { ex_.role("use", [&] { compute(tile, row_blocks); }); },
              [&] { b_.when(b_.compare(Compare::eq, tile, tiles), [&] { ex_.last_role(); }); });
        });
    Var rows = ex_.num_rows(ex_.rank());
    std::vector<Var> outputs{rows_of(v_.out, rows)};
    if (s_.has_lse) outputs.push_back(rows_of(v_.lse, rows));
    ex_.leave(outputs);
  }

 private:
  ExchangeShape exchange() const {
    return with_transfer(context_exchange(s_, schedule_.transfer.chunk_rows), schedule_.transfer.way);
  }

  /// A graph's tensors have more rows than a call owns.
  Var rows_of(Var view, Var rows) { return b_.slice(view, {0, 0}, {rows, view.type().shape[1]}); }
  Var head_of(Var view, Var rows, Var head) { return b_.slice(view, {0, head * a_.head_dim}, {rows, a_.head_dim}); }

  void push(Var program) {
    push_rows(b_, ex_, s_.world_size - 1, program, schedule_.transfer, [&](Var) {
      Var rows = ex_.num_rows(ex_.rank()), k = rows_of(v_.k, rows);
      return std::vector{Part{k}, Part{rows_of(v_.v, rows), a_.kv_heads * a_.head_dim}};
    });
  }

  /// Some queries of one head, from a row on.
  struct Queries {
    Var head, row, last, positions;  ///< position of the last one; of all [block_m], i32
  };

  void compute(Var tile, Var row_blocks) {
    // Late queries see the most keys under a causal mask: they go first, so that the short programs fill up the end.
    Var head = tile / row_blocks, row = (row_blocks - 1 - tile % row_blocks) * schedule_.block_m;
    const RowPieces<Var> own = rows_.of(ex_.rank());
    b_.when(may_begin(b_, ex_, schedule_.transfer, s_.world_size, tile, row < own.num_rows), [&] {
      Queries queries;
      queries.head = head, queries.row = row;
      queries.last = rows_.position(own, b_.min(row + schedule_.block_m, own.num_rows) - 1);
      queries.positions = rows_.position(rows_.in_i32(own), b_.iota(schedule_.block_m) + b_.cast(row, DType::i32));
      const Running nothing(b_, schedule_.block_m, a_.head_dim);
      const Running seen(b_.for_loop(0, s_.world_size, 1, nothing.carried(), [&](Var turn, const auto& carried) {
        return after_rank(queries, turn, tile, Running(carried)).carried();
      }));
      Var rows = ex_.num_rows(ex_.rank()), out = head_of(v_.out, rows, head);
      b_.store(out, {row, 0}, to_storage(b_, attention::normalized(b_, seen), s_.dtype));
      if (s_.has_lse) b_.store(rows_of(v_.lse, rows), {row, head}, b_.expand(attention::log_sum_exp(b_, seen), 1));
    });
  }

  /// How many of a rank's keys, its first ones, a query at `position` sees.
  Var num_seen(const RowPieces<Var>& p, Var position) { return a_.causal ? rows_.num_until(p, position) : p.num_rows; }

  /// Of one rank its keys up to the last one that a query of the tile sees.
  Running after_rank(const Queries& queries, Var turn, Var tile, const Running& before) {
    Var source = (ex_.rank() + turn) % s_.world_size, is_own = b_.compare(Compare::eq, turn, 0);
    const RowPieces<Var> p = rows_.of(source);
    Var end = num_seen(p, queries.last), seen = num_seen(rows_.in_i32(p), queries.positions);
    const auto visible = [&](Var first_key) {
      Var key = attention::column_numbers(b_, first_key, schedule_.block_m, schedule_.block_n);
      return key < (a_.causal ? across(b_, seen, schedule_.block_m, schedule_.block_n) : seen);
    };
    const int64_t chunk_rows = schedule_.transfer.chunk_rows;
    Var step = b_.select(is_own, b_.max(end, 1), chunk_rows);
    return Running(b_.for_loop(0, end, step, before.carried(), [&](Var first, const auto& carried) {
      Var chunk = first / chunk_rows, last = b_.min(first + step, end);
      Var has_come = ex_.await(0, source, chunk, b_.select(is_own, chunk, chunk + 1), tile);
      const Keys keys = keys_of(source, is_own, p.num_rows, queries.head / a_.group());
      // Not once before all loops: what would stay in registers through them is not far.
      Var q = head_of(v_.q, ex_.num_rows(ex_.rank()), queries.head);
      Var tile_of_q = b_.load(q, {queries.row, 0}, {schedule_.block_m, a_.head_dim});
      return attention::attend(b_, a_, keys, tile_of_q, first, b_.select(has_come, last, first), schedule_.block_n,
                               visible, Running(carried))
          .carried();
    }));
  }

  Keys keys_of(Var source, Var is_own, Var rows, Var kv_head) {
    Var staged = ex_.source(0, source, rows);
    Var k = b_.select(is_own, head_of(v_.k, rows, kv_head), head_of(staged, rows, kv_head));
    Var v = b_.select(is_own, head_of(v_.v, rows, kv_head), head_of(staged, rows, kv_head + a_.kv_heads));
    return {k, v};
  }

  KernelBuilder& b_;
  const ContextShape& s_;
  const AttentionForward& a_;
  const ContextSchedule& schedule_;
  Operands v_;
  ChannelViews channel_;
  Var length_;
  const SequenceRows rows_;
  Exchange ex_;
};

}  // namespace

ExchangeShape context_exchange(const ContextShape& shape, int64_t chunk_rows) {
  const int64_t columns = 2 * shape.attention.kv_heads * shape.attention.head_dim;
  return {shape.world_size,
          shape.identity,
          {{PhaseShape::Rows::of_source, shape.dtype, columns, chunk_rows}},
          0,
          shape.layout};
}

// Of zigzag a rank has up to 2 ceil(length / 2 P) rows: as block_m is even, in as many blocks as of ceil(length / P).
autotune::SizeExpr context_programs(const ContextShape& shape, const ContextSchedule& schedule) {
  return {shape.attention.heads, {{0, shape.world_size * schedule.block_m}}, schedule.transfer.push_programs + 1};
}

void build_context_attention(KernelBuilder& b, const ContextShape& shape, const ContextSchedule& schedule) {
  Builder(b, shape, schedule).build();
}

}  // namespace seqtile::kernels::seqpar
