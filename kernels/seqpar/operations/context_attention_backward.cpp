// kernels/seqpar/operations/context_attention_backward.cpp -- see seqtile/ops/ranks.h.
// SPDX-License-Identifier: Apache-2.0
//
// A row of a rank's staging is all that a peer needs of one place of the sequence:
//
//   k [kv_heads head_dim] | v | q [heads head_dim] | dout | in f32: lse [heads], delta [heads]
//
// so one flag stands for all of it. delta = sum(dout out) is computed by who sends: it stands for all of out. As in
// attention_backward each product that two kinds of programs need is computed by both, and nothing is added across
// programs, or ranks. That moves more than k and v alone with partial sums of dk and dv on the way back would where few
// key heads serve many query heads, and less where they are as many; but sums stay in registers, and there is one
// exchange, not two that depend on each other.
//
// Programs, in order: those that send this rank's rows to every rank, chunk by chunk; blocks of its keys, which go over
// the queries of one rank after the other; blocks of its queries, which go over the keys; one that awaits the rest. A
// program starts with its own rank's rows and waits for a peer's when it comes to them. Own rows go through the staging
// as well: there all that is known of a row is in one place, and a GPU's registers do not hold addresses of two.
#include "seqtile/ops/ranks.h"

#include <algorithm>
#include <array>
#include <numeric>

#include "jit/base/cdiv.h"
#include "kernels/attention/attention_backward_parts.h"
#include "kernels/attention/attention_parts.h"
#include "kernels/seqpar/exchange/rank_op.h"
#include "kernels/seqpar/exchange/rank_problem.h"
#include "kernels/seqpar/exchange/row_layout.h"
#include "kernels/seqpar/patterns/context_op.h"
#include "seqtile/kernel.h"
#include "seqtile/ops/attention.h"

namespace seqtile::kernels::seqpar {

using attention::numbers_from;
using attention_backward_op::QueryFacts;
using attention_backward_op::ReferenceQueries;
using autotune::Config;
using autotune::Problem;

namespace {

/// Columns of a staged row, in elements of the operation's type; those of its f32 part are counted in f32.
struct StagedRow {
  explicit StagedRow(const ContextAttentionBackward& op)
      : v(op.kv_heads * op.head_dim),
        q(2 * v),
        dout(q + op.heads * op.head_dim),
        lse((dout + op.heads * op.head_dim) * dtype_bytes(op.dtype) / 4),
        delta(lse + op.heads),
        end(round_up((delta + op.heads) * 4, kAlignment) / dtype_bytes(op.dtype)) {}
  const int64_t v, q, dout, lse, delta, end;

 private:
  static constexpr int64_t kAlignment = 16;  ///< bytes: as wide as accesses are
};

using Build = ContextBuild<ContextAttentionBackward, AttentionBackward>;

class Builder : Build {
 public:
  explicit Builder(const RankBuild& given) : Build(given) {}

  void build() {
    row_blocks_ = b.cdiv(ex.length(), ex.world_size() * t.block);
    own_rows_ = ex.num_rows(ex.rank());
    const std::array kinds{
        ProgramKind{"push", schedule.push_programs, [&](Var i) { push(i); }},
        ProgramKind{"use", row_blocks_ * s.kv_heads, [&](Var i) { compute_keys(i); }},
        ProgramKind{"use", row_blocks_ * s.heads, [&](Var i) { compute_queries(i); }},
        ProgramKind{"", 1, [&](Var) { ex.last_role(); }},
    };
    run_program(b, ex, b.program_id(0), kinds);
    std::vector<Var> outputs;
    for (Var view : {views.dq, views.dk, views.dv}) outputs.push_back(own(view));
    ex.leave(outputs);
  }

 private:
  /// Own rows: a graph's tensors have more.
  Var own(Var view) { return rows_of(b, view, 0, own_rows_); }
  /// One number for each row.
  Var number_of(Var view, Var rows, Var column) { return b.at(b.slice(view, {0, column}, {rows, 1}), 1, 0); }

  // --- sending

  void push(Var program) {
    push_chunks(b, ex, ex.world_size(), program, schedule, [&](Var peer, Var chunk) {
      Var first = chunk * schedule.chunk_rows, end = b.min(first + schedule.chunk_rows, own_rows_);
      Var to = ex.target(0, peer, own_rows_), numbers = ex.target(0, peer, own_rows_, DType::f32);
      const std::vector<Part> parts{
          {own(views.k)}, {own(views.v), staged_.v}, {own(views.q), staged_.q}, {own(views.dout), staged_.dout}};
      copy_parts(b, parts, to, own_rows_, first, end);
      copy_parts(b, {{own(views.lse), staged_.lse}}, numbers, own_rows_, first, end);
      send_deltas(numbers, first, end);
    });
  }

  void send_deltas(Var to, Var first, Var end) {
    constexpr int64_t kRows = 16;
    b.for_each(0, s.heads, 1, [&](Var head) {
      Var out = head_of(views.out, end, head), dout = head_of(views.dout, end, head);
      Var deltas = number_of(to, end, head + staged_.delta);
      b.for_each(first, end, kRows, [&](Var row) {
        Var block = b.load(dout, {row, 0}, {kRows, s.head_dim});
        b.store(deltas, {row}, attention_backward_op::load_delta(b, out, row, block));
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
    source.rank = (ex.rank() + turn) % ex.world_size();
    source.pieces = positions.of(source.rank);
    source.num_rows = source.pieces.num_rows;
    return source;
  }
  /// i1: chunks [first, last) have come.
  Var await(Source& source, Var first, Var last, Var tile) {
    Var has_come = ex.await(0, source.rank, first, last, tile);
    source.staged = ex.source(0, source.rank, source.num_rows);
    source.numbers = ex.source(0, source.rank, source.num_rows, DType::f32);
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
    Var head = tile / row_blocks_, row = tile % row_blocks_ * t.block;
    b.when(may_begin(b, ex, schedule, tile, row < own_rows_), [&] {
      const RowPieces<Var> mine = positions.of(ex.rank());
      KeyBlock block;
      block.head = head;
      block.keys = b.load(head_of(views.k, own_rows_, head), {row, 0}, {t.block, s.head_dim});
      block.values = b.load(head_of(views.v, own_rows_, head), {row, 0}, {t.block, s.head_dim});
      block.first = positions.position(mine, row);
      block.positions = positions.position(positions.in_i32(mine), numbers_from(b, row, t.block));
      Var zero = b.full({t.block, s.head_dim}, 0.0);
      const auto sums = b.for_loop(0, ex.world_size(), 1, {zero, zero}, [&](Var turn, const std::vector<Var>& before) {
        return after_queries(block, turn, tile, before);
      });
      b.store(head_of(views.dk, own_rows_, head), {row, 0}, to_storage(b, sums[0] * s.scale, s.dtype));
      b.store(head_of(views.dv, own_rows_, head), {row, 0}, to_storage(b, sums[1], s.dtype));
    });
  }

  /// With one rank's queries from the first one on that sees a key of the block, of all query heads of the group.
  std::vector<Var> after_queries(const KeyBlock& block, Var turn, Var tile, const std::vector<Var>& before) {
    const int64_t block_n = t.block_n, chunk_rows = schedule.chunk_rows;
    Source source = source_of(turn);
    Var first = b.constant(DType::i64, int64_t{0}), unseeing;
    if (s.causal) {
      first = positions.num_until(source.pieces, block.first - 1) / block_n * block_n;
      unseeing = positions.num_until(positions.in_i32(source.pieces), block.positions - 1);
      unseeing = across(b, unseeing, t.block, block_n);
    }
    Var has_come = await(source, first / chunk_rows, b.cdiv(source.num_rows, chunk_rows), tile);
    Var end = b.select(has_come, source.num_rows, first);
    return b.for_loop(0, s.group(), 1, before, [&](Var i, const std::vector<Var>& of_heads) {
      Var head = block.head * s.group() + i;
      Var q = head_in(source, staged_.q, head), dout = head_in(source, staged_.dout, head);
      Var lses = number_in(source, staged_.lse, head), deltas = number_in(source, staged_.delta, head);
      return b.for_loop(first, end, block_n, of_heads, [&](Var row, const std::vector<Var>& sums) {
        QueryFacts facts;
        facts.lse = attention_backward_op::load_lse(b, lses, row, block_n);
        facts.delta = b.load(deltas, {row}, {block_n});
        const auto visible = [&] {
          Var queries = down(b, numbers_from(b, row, block_n), t.block, block_n);
          return s.causal ? queries >= unseeing : queries < b.cast(source.num_rows, DType::i32);
        };
        return add_queries(b, s, block.keys, block.values, q, dout, row, block_n, facts, visible, sums);
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
    Var head = tile / row_blocks_, row = (row_blocks_ - 1 - tile % row_blocks_) * t.block;
    b.when(may_begin(b, ex, schedule, tile, row < own_rows_), [&] {
      const RowPieces<Var> mine = positions.of(ex.rank());
      QueryBlock block;
      block.kv_head = head / s.group();
      block.queries = b.load(head_of(views.q, own_rows_, head), {row, 0}, {t.block, s.head_dim});
      block.dout = b.load(head_of(views.dout, own_rows_, head), {row, 0}, {t.block, s.head_dim});
      block.facts.lse = attention_backward_op::load_lse(b, number_of(views.lse, own_rows_, head), row, t.block);
      block.facts.delta = attention_backward_op::load_delta(b, head_of(views.out, own_rows_, head), row, block.dout);
      block.last = positions.position(mine, b.min(row + t.block, own_rows_) - 1);
      block.positions = positions.position(positions.in_i32(mine), numbers_from(b, row, t.block));
      Var zero = b.full({t.block, s.head_dim}, 0.0);
      Var sum = b.for_loop(0, ex.world_size(), 1, {zero}, [&](Var turn, const std::vector<Var>& before) {
        return after_keys(block, turn, tile, before);
      })[0];
      b.store(head_of(views.dq, own_rows_, head), {row, 0}, to_storage(b, sum * s.scale, s.dtype));
    });
  }

  /// With one rank's keys up to the last one that a query of the block sees, chunk by chunk.
  std::vector<Var> after_keys(const QueryBlock& block, Var turn, Var tile, const std::vector<Var>& before) {
    const int64_t block_n = t.block_n, chunk_rows = schedule.chunk_rows;
    Source source = source_of(turn);
    Var end = source.num_rows, seen = b.cast(end, DType::i32);
    if (s.causal) {
      end = positions.num_until(source.pieces, block.last);
      seen = positions.num_until(positions.in_i32(source.pieces), block.positions);
      seen = across(b, seen, t.block, block_n);
    }
    return b.for_loop(0, end, chunk_rows, before, [&](Var first, const std::vector<Var>& of_chunks) {
      Var chunk = first / chunk_rows;
      Var has_come = await(source, chunk, chunk + 1, tile);
      Var last = b.select(has_come, b.min(first + chunk_rows, end), first);
      Var k = head_in(source, 0, block.kv_head), v = head_in(source, staged_.v, block.kv_head);
      return b.for_loop(first, last, block_n, of_chunks, [&](Var key, const std::vector<Var>& sum) {
        const auto visible = [&] { return down(b, numbers_from(b, key, block_n), t.block, block_n) < seen; };
        return std::vector{add_keys(b, s, block.queries, block.dout, block.facts, k, v, key, block_n, visible, sum[0])};
      });
    });
  }

  const StagedRow staged_{op};
  Var row_blocks_, own_rows_;
};

/// The sum of dout out of a query of one head, whose first column is `first`.
double delta_of(const ContextAttentionBackward::Args& t, int64_t row, int64_t first, int64_t head_dim) {
  const std::vector<double> out = read_row(t.out, row), dout = read_row(t.dout, row);
  return std::inner_product(out.begin() + first, out.begin() + first + head_dim, dout.begin() + first, 0.0);
}

/// What is known of the whole sequence of one head, in its order: own rows from the tensors, those of peers from the
/// staging.
struct Whole {
  Whole(const ContextAttentionBackward& op, const Problem& p, const ContextAttentionBackward::Args& t, int64_t head) {
    const int64_t kv_head = head / plain_of<AttentionBackward>(op).group(), dim = op.head_dim;
    const ExchangeShape exchange = exchange_of(op);
    const StagedRow columns(op);
    for (int64_t position = 0; position < p.symbols[0]; ++position) {
      const auto append = [&](std::vector<double>& to, const Tensor& own, int64_t column, int64_t of_head) {
        const std::vector<double> row = gathered_row(p, op.ranks, exchange, own, position, column);
        to.insert(to.end(), row.begin() + of_head * dim, row.begin() + (of_head + 1) * dim);
      };
      append(k, t.k, 0, kv_head);
      append(v, t.v, columns.v, kv_head);
      append(queries.q, t.q, columns.q, head);
      append(queries.dout, t.dout, columns.dout, head);
      const RowPlace place = place_of_row(op.layout, position, p.symbols[0], op.ranks.size());
      const bool is_own = place.rank == op.ranks.longest();
      const Tensor staged = staged_rows(p, exchange, 0, place.rank, place.row + 1, 0, DType::f32);
      const std::vector<double> numbers = read_row(is_own ? t.lse : staged, place.row);
      queries.lse.push_back(numbers[static_cast<size_t>(head + (is_own ? 0 : columns.lse))]);
      queries.delta.push_back(is_own ? delta_of(t, place.row, head * dim, dim)
                                     : numbers[static_cast<size_t>(head + columns.delta)]);
    }
  }
  std::vector<double> k, v;
  ReferenceQueries queries;
};

struct ContextKernel {
  ContextAttentionBackward op;

  void build(const RankBuild<ContextAttentionBackward>& given) const { Builder(given).build(); }

  /// Those that push, the tiles of the rank's keys and of its queries, and one more. There are as many blocks of rows
  /// as in context_attention.cpp: `block` is even.
  autotune::SizeExpr programs(const Config& c) const {
    const int64_t rows = op.ranks.world_size * c.get_int("block");
    return {op.heads + op.kv_heads, {{0, rows}}, c.get_int("push_programs") + 1};
  }

  ContextOp plans() const {
    return {plain_of<AttentionBackward>(op).workload(), op.ranks, op.layout,
            [this](const Config& tile, const Target&) { return leaves_room(tile); }};
  }

  bool fill(const Problem& p, size_t arg, uint64_t seed) const {
    const std::string& name = p.schema->args[arg].name;
    if (name == "lse") return fill_lse(p, p.tensors[arg]), true;
    if (name != "staging") return false;
    fill_channel_arg(p, arg, exchange_of(op), op.ranks.longest(), seed);
    fill_numbers(p);
    return true;
  }

  void reference(const Problem& p, const ContextAttentionBackward::Args& t, std::span<const int64_t> rows,
                 ContextAttentionBackward::Tensors<std::vector<double>>& out) const {
    const auto s = plain_of<AttentionBackward>(op);
    const int64_t length = p.symbols[0], dim = s.head_dim;
    const auto q_columns = static_cast<size_t>(s.heads * dim), kv_columns = static_cast<size_t>(s.kv_heads * dim);
    out.dq.resize(rows.size() * q_columns);
    for (std::vector<double>* gradient : {&out.dk, &out.dv}) gradient->resize(rows.size() * kv_columns);
    for (int64_t head = 0; head < s.heads; ++head) {
      const Whole whole(op, p, t, head);
      for (size_t r = 0; r < rows.size(); ++r) {
        const int64_t position = position_of_row(op.layout, op.ranks.longest(), rows[r], length, op.ranks.size());
        const size_t query = r * q_columns + static_cast<size_t>(head * dim);
        const size_t key = r * kv_columns + static_cast<size_t>(head / s.group() * dim);
        add_reference_keys(s, whole.queries, position, whole.k, whole.v, 0, s.causal ? position + 1 : length,
                           &out.dq[query]);
        add_reference_queries(s, whole.queries, s.causal ? position : 0, length,
                              &whole.k[static_cast<size_t>(position * dim)],
                              &whole.v[static_cast<size_t>(position * dim)], &out.dk[key], &out.dv[key]);
      }
    }
  }

 private:
  /// Beside what they know of the ranks, threads of a GPU hold the sums of dk and dv, scores and weights, and keys and
  /// values of their warp's rows as operands.
  bool leaves_room(const Config& tile) const {
    const int64_t most_values = op.dtype == DType::f32 ? 96 : 108;  // of a thread
    const int64_t block = tile.get_int("block"), block_n = tile.get_int("block_n");
    const int64_t num_warps = tile.get_int("num_warps"), row_warps = std::min(num_warps, block / 16);
    // Warps that share a tile's rows take eight columns each: without so many, two have the same.
    if (8 * num_warps / row_warps > block_n) return false;
    const int64_t sums = block * (2 * op.head_dim + 3 * block_n) / (32 * num_warps);
    return sums + 2 * (block / row_warps) * op.head_dim / 32 * dtype_bytes(op.dtype) / 4 <= most_values;
  }

  /// lse of queries whose scores are normal, by their place in the sequence.
  double made_up_lse(int64_t position, int64_t length) const {
    return attention_backward_op::usual_lse(static_cast<double>(op.causal ? position + 1 : length));
  }

  void fill_lse(const Problem& p, const Tensor& lse) const {
    for (int64_t row = 0; row < lse.sizes[0]; ++row) {
      const int64_t position = position_of_row(op.layout, op.ranks.longest(), row, p.symbols[0], op.ranks.size());
      for (int64_t head = 0; head < lse.sizes[1]; ++head)
        write_element(lse, row * lse.strides[0] + head * lse.strides[1], made_up_lse(position, p.symbols[0]));
    }
  }

  /// Fills the numbers that peers send beside their rows: lse, and a delta of the usual size.
  void fill_numbers(const Problem& p) const {
    const StagedRow columns(op);
    const int64_t length = p.symbols[0];
    for (int source = 0; source < op.ranks.size(); ++source)
      for (int parity = 0; parity < 2; ++parity) {
        const int64_t own_rows = num_rows(op.layout, source, length, op.ranks.size());
        const Tensor rows = staged_rows(p, exchange_of(op), 0, source, own_rows, parity, DType::f32);
        for (int64_t row = 0; row < rows.sizes[0]; ++row)
          for (int64_t head = 0; head < op.heads; ++head) {
            const int64_t position = position_of_row(op.layout, source, row, length, op.ranks.size());
            const int64_t at = row * rows.sizes[1] + head;
            write_element(rows, at + columns.lse, made_up_lse(position, length));
            write_element(rows, at + columns.delta, static_cast<double>((position + head) % 5 - 2));
          }
      }
  }
};

}  // namespace

void ContextAttentionBackward::fields(FieldVisitor& v) {
  ranks.fields(v);
  attention::visit_fields(v, heads, kv_heads, head_dim, causal, scale);
  v.choice("layout", layout, kRowLayoutNames);
}
ExchangeShape ContextAttentionBackward::exchange(int64_t chunk_rows) const {
  return context_exchange(*this, StagedRow(*this).end, chunk_rows);
}
const Protocol& ContextAttentionBackward::protocol(const Config& config) {
  return protocol_of_gather(transfer_of(config));
}

autotune::OpDef context_attention_backward() {
  return rank_op<ContextKernel>(
      "own rows of the gradients of attention over the keys of all ranks, in one launch of each", 5);
}

}  // namespace seqtile::kernels::seqpar
