// kernels/seqpar/patterns/context_attention_backward_kernel.cpp -- see context_attention_backward_kernel.h.
// SPDX-License-Identifier: Apache-2.0
//
// Programs, in order: those that send this rank's rows to every rank, chunk by chunk; blocks of its keys, which go over
// the queries of one rank after the other; blocks of its queries, which go over the keys; one that awaits the rest. A
// program starts with its own rank's rows and waits for a peer's when it comes to them. Own rows go through the staging
// as well: there all that is known of a row is in one place, and a GPU's registers do not hold addresses of two.
#include "kernels/seqpar/patterns/context_attention_backward_kernel.h"

#include <array>

#include "kernels/seqpar/exchange/channel_args.h"
#include "kernels/seqpar/exchange/chunked_tiles.h"
#include "kernels/seqpar/exchange/program_kinds.h"
#include "kernels/seqpar/exchange/row_layout.h"
#include "kernels/seqpar/patterns/sequence_rows.h"
#include "seqtile/kernel.h"

namespace seqtile::kernels::seqpar {

using attention_backward_op::QueryFacts;

namespace {

constexpr int64_t kAlignment = 16;  ///< bytes of a staged row: as wide as accesses are

struct Operands {
  Operands(KernelBuilder& b, const ContextBackwardShape& s) {
    const auto queries = [&](const char* name) { return b.view(name, s.dtype, {kDynamic, s.q_columns()}); };
    const auto keys = [&](const char* name) { return b.view(name, s.dtype, {kDynamic, s.kv_columns()}); };
    q = queries("q"), k = keys("k"), v = keys("v"), out = queries("out");
    lse = b.view("lse", DType::f32, {kDynamic, s.attention.heads});
    dout = queries("dout"), dq = queries("dq"), dk = keys("dk"), dv = keys("dv");
    sequence = b.view("sequence", DType::i8, {kDynamic});
  }
  Var q, k, v, out, lse, dout, dq, dk, dv, sequence;
};

class Builder {
 public:
  Builder(KernelBuilder& b, const ContextBackwardShape& shape, const ContextBackwardSchedule& schedule)
      : b_(b),
        s_(shape),
        a_(shape.attention),
        schedule_(schedule),
        v_(b, shape),
        channel_(declare_channel(b)),
        length_(b.size(v_.sequence, 0)),
        positions_(b, shape.layout, shape.world_size, length_),
        ex_(b, protocol_of_gather(schedule_.transfer.way), exchange(), channel_.block, channel_.counters,
            channel_.op_id, length_) {
    check_chunk(schedule.transfer.chunk_rows, schedule.block_n);
  }

  void build() {
    row_blocks_ = b_.cdiv(length_, s_.world_size * schedule_.block);
    own_rows_ = ex_.num_rows(ex_.rank());
    const std::array kinds{
        ProgramKind{schedule_.transfer.push_programs, [&](Var i) { ex_.role("push", [&] { push(i); }); }},
        ProgramKind{row_blocks_ * a_.kv_heads, [&](Var i) { ex_.role("use", [&] { compute_keys(i); }); }},
        ProgramKind{row_blocks_ * a_.heads, [&](Var i) { ex_.role("use", [&] { compute_queries(i); }); }},
        ProgramKind{1, [&](Var) { ex_.last_role(); }},
    };
    run_program(b_, b_.program_id(0), kinds);
    std::vector<Var> outputs;
    for (Var view : {v_.dq, v_.dk, v_.dv}) outputs.push_back(rows_of(view));
    ex_.leave(outputs);
  }

 private:
  ExchangeShape exchange() const {
    return with_transfer(context_backward_exchange(s_, schedule_.transfer.chunk_rows), schedule_.transfer.way);
  }

  /// Own rows: a graph's tensors have more.
  Var rows_of(Var view) { return b_.slice(view, {0, 0}, {own_rows_, view.type().shape[1]}); }
  /// The columns of one head in `rows` rows, of which the first head has those from `column` on.
  Var head_of(Var view, Var rows, Var head, int64_t column = 0) {
    Var first = head * a_.head_dim;
    return b_.slice(view, {0, column ? first + column : first}, {rows, a_.head_dim});
  }
  /// One number for each row.
  Var number_of(Var view, Var rows, Var column) { return b_.at(b_.slice(view, {0, column}, {rows, 1}), 1, 0); }
  Var numbers_from(Var first, int64_t count) { return b_.iota(count) + b_.cast(first, DType::i32); }

  // --- sending

  void push(Var program) {
    const TransferSchedule& transfer = schedule_.transfer;
    push_chunks(b_, ex_, s_.world_size, program, transfer, [&](Var peer, Var chunk) {
      Var first = chunk * transfer.chunk_rows, end = b_.min(first + transfer.chunk_rows, own_rows_);
      Var to = ex_.target(0, peer, own_rows_), numbers = ex_.target(0, peer, own_rows_, DType::f32);
      const std::vector<Part> parts{{rows_of(v_.k)},
                                    {rows_of(v_.v), s_.v_column()},
                                    {rows_of(v_.q), s_.q_column()},
                                    {rows_of(v_.dout), s_.dout_column()}};
      copy_parts(b_, parts, to, own_rows_, first, end);
      copy_parts(b_, {{rows_of(v_.lse), s_.lse_column()}}, numbers, own_rows_, first, end);
      send_deltas(numbers, first, end);
    });
  }

  void send_deltas(Var to, Var first, Var end) {
    constexpr int64_t kRows = 16;
    b_.for_each(0, a_.heads, 1, [&](Var head) {
      Var out = head_of(v_.out, end, head), dout = head_of(v_.dout, end, head);
      Var deltas = number_of(to, end, head + s_.delta_column());
      b_.for_each(first, end, kRows, [&](Var row) {
        Var block = b_.load(dout, {row, 0}, {kRows, a_.head_dim});
        b_.store(deltas, {row}, attention_backward_op::load_delta(b_, out, row, block));
      });
    });
  }

  // --- what a program finds of one rank

  struct Source {
    Var rank, num_rows, staged, numbers;
    RowPieces<Var> pieces;
  };
  Source source_of(Var turn) {
    Source source;
    source.rank = (ex_.rank() + turn) % s_.world_size;
    source.pieces = positions_.of(source.rank);
    source.num_rows = source.pieces.num_rows;
    return source;
  }
  /// i1: chunks [first, last) have come.
  Var await(Source& source, Var first, Var last, Var tile) {
    Var has_come = ex_.await(0, source.rank, first, last, tile);
    source.staged = ex_.source(0, source.rank, source.num_rows);
    source.numbers = ex_.source(0, source.rank, source.num_rows, DType::f32);
    return has_come;
  }
  Var head_in(const Source& source, int64_t column, Var head) {
    return head_of(source.staged, source.num_rows, head, column);
  }
  Var number_in(const Source& source, int64_t column, Var head) {
    return number_of(source.numbers, source.num_rows, head + column);
  }

  // --- dk and dv of a block of keys

  struct KeyBlock {
    Var head, keys, values, first, positions;  ///< position of the first one; of all [block], i32
  };

  void compute_keys(Var tile) {
    // Early keys are seen by the most queries under a causal mask: they go first.
    Var head = tile / row_blocks_, row = tile % row_blocks_ * schedule_.block;
    b_.when(may_begin(b_, ex_, schedule_.transfer, s_.world_size, tile, row < own_rows_), [&] {
      const RowPieces<Var> own = positions_.of(ex_.rank());
      KeyBlock block;
      block.head = head;
      block.keys = b_.load(head_of(v_.k, own_rows_, head), {row, 0}, {schedule_.block, a_.head_dim});
      block.values = b_.load(head_of(v_.v, own_rows_, head), {row, 0}, {schedule_.block, a_.head_dim});
      block.first = positions_.position(own, row);
      block.positions = positions_.position(positions_.in_i32(own), numbers_from(row, schedule_.block));
      Var zero = b_.full({schedule_.block, a_.head_dim}, 0.0);
      const auto sums = b_.for_loop(0, s_.world_size, 1, {zero, zero}, [&](Var turn, const std::vector<Var>& before) {
        return after_queries(block, turn, tile, before);
      });
      b_.store(head_of(v_.dk, own_rows_, head), {row, 0}, to_storage(b_, sums[0] * a_.scale, s_.dtype));
      b_.store(head_of(v_.dv, own_rows_, head), {row, 0}, to_storage(b_, sums[1], s_.dtype));
    });
  }

  /// With one rank's queries from the first one on that sees a key of the block, of all query heads of the group.
  std::vector<Var> after_queries(const KeyBlock& block, Var turn, Var tile, const std::vector<Var>& before) {
    const int64_t block_n = schedule_.block_n, chunk_rows = schedule_.transfer.chunk_rows;
    Source source = source_of(turn);
    Var first = b_.constant(DType::i64, int64_t{0}), unseeing;
    if (a_.causal) {
      first = positions_.num_until(source.pieces, block.first - 1) / block_n * block_n;
      unseeing = positions_.num_until(positions_.in_i32(source.pieces), block.positions - 1);
      unseeing = across(b_, unseeing, schedule_.block, block_n);
    }
    Var has_come = await(source, first / chunk_rows, b_.cdiv(source.num_rows, chunk_rows), tile);
    Var end = b_.select(has_come, source.num_rows, first);
    return b_.for_loop(0, a_.group(), 1, before, [&](Var i, const std::vector<Var>& of_heads) {
      Var head = block.head * a_.group() + i;
      Var q = head_in(source, s_.q_column(), head), dout = head_in(source, s_.dout_column(), head);
      Var lses = number_in(source, s_.lse_column(), head), deltas = number_in(source, s_.delta_column(), head);
      return b_.for_loop(first, end, block_n, of_heads, [&](Var row, const std::vector<Var>& sums) {
        QueryFacts facts;
        facts.lse = attention_backward_op::load_lse(b_, lses, row, block_n);
        facts.delta = b_.load(deltas, {row}, {block_n});
        const auto visible = [&] {
          Var queries = down(b_, numbers_from(row, block_n), schedule_.block, block_n);
          return a_.causal ? queries >= unseeing : queries < b_.cast(source.num_rows, DType::i32);
        };
        return add_queries(b_, a_, block.keys, block.values, q, dout, row, block_n, facts, visible, sums);
      });
    });
  }

  // --- dq of a block of queries

  struct QueryBlock {
    Var kv_head, queries, dout, last, positions;  ///< position of the last one; of all [block], i32
    QueryFacts facts;
  };

  void compute_queries(Var tile) {
    // Late queries see the most keys under a causal mask: they go first.
    Var head = tile / row_blocks_, row = (row_blocks_ - 1 - tile % row_blocks_) * schedule_.block;
    b_.when(may_begin(b_, ex_, schedule_.transfer, s_.world_size, tile, row < own_rows_), [&] {
      const RowPieces<Var> own = positions_.of(ex_.rank());
      QueryBlock block;
      block.kv_head = head / a_.group();
      block.queries = b_.load(head_of(v_.q, own_rows_, head), {row, 0}, {schedule_.block, a_.head_dim});
      block.dout = b_.load(head_of(v_.dout, own_rows_, head), {row, 0}, {schedule_.block, a_.head_dim});
      block.facts.lse = attention_backward_op::load_lse(b_, number_of(v_.lse, own_rows_, head), row, schedule_.block);
      block.facts.delta = attention_backward_op::load_delta(b_, head_of(v_.out, own_rows_, head), row, block.dout);
      block.last = positions_.position(own, b_.min(row + schedule_.block, own_rows_) - 1);
      block.positions = positions_.position(positions_.in_i32(own), numbers_from(row, schedule_.block));
      Var zero = b_.full({schedule_.block, a_.head_dim}, 0.0);
      Var sum = b_.for_loop(0, s_.world_size, 1, {zero}, [&](Var turn, const std::vector<Var>& before) {
        return after_keys(block, turn, tile, before);
      })[0];
      b_.store(head_of(v_.dq, own_rows_, head), {row, 0}, to_storage(b_, sum * a_.scale, s_.dtype));
    });
  }

  /// With one rank's keys up to the last one that a query of the block sees, chunk by chunk.
  std::vector<Var> after_keys(const QueryBlock& block, Var turn, Var tile, const std::vector<Var>& before) {
    const int64_t block_n = schedule_.block_n, chunk_rows = schedule_.transfer.chunk_rows;
    Source source = source_of(turn);
    Var end = source.num_rows, seen = b_.cast(end, DType::i32);
    if (a_.causal) {
      end = positions_.num_until(source.pieces, block.last);
      seen = positions_.num_until(positions_.in_i32(source.pieces), block.positions);
      seen = across(b_, seen, schedule_.block, block_n);
    }
    return b_.for_loop(0, end, chunk_rows, before, [&](Var first, const std::vector<Var>& of_chunks) {
      Var chunk = first / chunk_rows;
      Var has_come = await(source, chunk, chunk + 1, tile);
      Var last = b_.select(has_come, b_.min(first + chunk_rows, end), first);
      Var k = head_in(source, 0, block.kv_head), v = head_in(source, s_.v_column(), block.kv_head);
      return b_.for_loop(first, last, block_n, of_chunks, [&](Var key, const std::vector<Var>& sum) {
        const auto visible = [&] { return down(b_, numbers_from(key, block_n), schedule_.block, block_n) < seen; };
        return std::vector{
            add_keys(b_, a_, block.queries, block.dout, block.facts, k, v, key, block_n, visible, sum[0])};
      });
    });
  }

  KernelBuilder& b_;
  const ContextBackwardShape& s_;
  const AttentionBackward& a_;
  const ContextBackwardSchedule& schedule_;
  Operands v_;
  ChannelViews channel_;
  Var length_;
  const SequenceRows positions_;
  Exchange ex_;
  Var row_blocks_, own_rows_;
};

}  // namespace

int64_t ContextBackwardShape::columns() const {
  const int64_t bytes = (delta_column() + attention.heads) * 4;
  return (bytes + kAlignment - 1) / kAlignment * kAlignment / dtype_bytes(dtype);
}

ExchangeShape context_backward_exchange(const ContextBackwardShape& shape, int64_t chunk_rows) {
  return {shape.world_size,
          shape.identity,
          {{PhaseShape::Rows::of_source, shape.dtype, shape.columns(), chunk_rows}},
          0,
          shape.layout};
}

// As many blocks of rows as of context_attention_kernel.cpp: `block` is even.
autotune::SizeExpr context_backward_programs(const ContextBackwardShape& shape,
                                             const ContextBackwardSchedule& schedule) {
  return {shape.attention.heads + shape.attention.kv_heads,
          {{0, shape.world_size * schedule.block}},
          schedule.transfer.push_programs + 1};
}

void build_context_backward(KernelBuilder& b, const ContextBackwardShape& shape,
                            const ContextBackwardSchedule& schedule) {
  Builder(b, shape, schedule).build();
}

}  // namespace seqtile::kernels::seqpar
