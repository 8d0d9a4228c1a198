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

#include "jit/base/cdiv.h"
#include "kernels/attention/attention_backward_parts.h"
#include "kernels/attention/attention_parts.h"
#include "kernels/seqpar/exchange/chunked_tiles.h"
#include "kernels/seqpar/exchange/rank_op.h"
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

class Builder {
 public:
  Builder(KernelBuilder& b, const ContextAttentionBackward& op, const Config& c, const ExchangeShape& exchange)
      : b_(b), op_(op), c_(c), exchange_(exchange) {
    check_chunk(schedule_.chunk_rows, tile_.block_n);
  }

  void build() {
    row_blocks_ = b_.cdiv(ex_.length(), ex_.world_size() * tile_.block);
    own_rows_ = ex_.num_rows(ex_.rank());
    const std::array kinds{
        ProgramKind{schedule_.push_programs, [&](Var i) { ex_.role("push", [&] { push(i); }); }},
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
  /// Own rows: a graph's tensors have more.
  Var rows_of(Var view) { return b_.slice(view, {0, 0}, {own_rows_, view.type().shape[1]}); }
  /// The columns of one head in `rows` rows, of which the first head has those from `column` on.
  Var head_of(Var view, Var rows, Var head, int64_t column = 0) {
    Var first = head * a_.head_dim;
    return b_.slice(view, {0, column ? first + column : first}, {rows, a_.head_dim});
  }
  /// One number for each row.
  Var number_of(Var view, Var rows, Var column) { return b_.at(b_.slice(view, {0, column}, {rows, 1}), 1, 0); }

  // --- sending

  void push(Var program) {
    push_chunks(b_, ex_, ex_.world_size(), program, schedule_, [&](Var peer, Var chunk) {
      Var first = chunk * schedule_.chunk_rows, end = b_.min(first + schedule_.chunk_rows, own_rows_);
      Var to = ex_.target(0, peer, own_rows_), numbers = ex_.target(0, peer, own_rows_, DType::f32);
      const std::vector<Part> parts{
          {rows_of(v_.k)}, {rows_of(v_.v), staged_.v}, {rows_of(v_.q), staged_.q}, {rows_of(v_.dout), staged_.dout}};
      copy_parts(b_, parts, to, own_rows_, first, end);
      copy_parts(b_, {{rows_of(v_.lse), staged_.lse}}, numbers, own_rows_, first, end);
      send_deltas(numbers, first, end);
    });
  }

  void send_deltas(Var to, Var first, Var end) {
    constexpr int64_t kRows = 16;
    b_.for_each(0, a_.heads, 1, [&](Var head) {
      Var out = head_of(v_.out, end, head), dout = head_of(v_.dout, end, head);
      Var deltas = number_of(to, end, head + staged_.delta);
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
    source.rank = (ex_.rank() + turn) % ex_.world_size();
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
    Var head = tile / row_blocks_, row = tile % row_blocks_ * tile_.block;
    b_.when(may_begin(b_, ex_, schedule_, tile, row < own_rows_), [&] {
      const RowPieces<Var> own = positions_.of(ex_.rank());
      KeyBlock block;
      block.head = head;
      block.keys = b_.load(head_of(v_.k, own_rows_, head), {row, 0}, {tile_.block, a_.head_dim});
      block.values = b_.load(head_of(v_.v, own_rows_, head), {row, 0}, {tile_.block, a_.head_dim});
      block.first = positions_.position(own, row);
      block.positions = positions_.position(positions_.in_i32(own), numbers_from(b_, row, tile_.block));
      Var zero = b_.full({tile_.block, a_.head_dim}, 0.0);
      const auto sums = b_.for_loop(
          0, ex_.world_size(), 1, {zero, zero},
          [&](Var turn, const std::vector<Var>& before) { return after_queries(block, turn, tile, before); });
      b_.store(head_of(v_.dk, own_rows_, head), {row, 0}, to_storage(b_, sums[0] * a_.scale, a_.dtype));
      b_.store(head_of(v_.dv, own_rows_, head), {row, 0}, to_storage(b_, sums[1], a_.dtype));
    });
  }

  /// With one rank's queries from the first one on that sees a key of the block, of all query heads of the group.
  std::vector<Var> after_queries(const KeyBlock& block, Var turn, Var tile, const std::vector<Var>& before) {
    const int64_t block_n = tile_.block_n, chunk_rows = schedule_.chunk_rows;
    Source source = source_of(turn);
    Var first = b_.constant(DType::i64, int64_t{0}), unseeing;
    if (a_.causal) {
      first = positions_.num_until(source.pieces, block.first - 1) / block_n * block_n;
      unseeing = positions_.num_until(positions_.in_i32(source.pieces), block.positions - 1);
      unseeing = across(b_, unseeing, tile_.block, block_n);
    }
    Var has_come = await(source, first / chunk_rows, b_.cdiv(source.num_rows, chunk_rows), tile);
    Var end = b_.select(has_come, source.num_rows, first);
    return b_.for_loop(0, a_.group(), 1, before, [&](Var i, const std::vector<Var>& of_heads) {
      Var head = block.head * a_.group() + i;
      Var q = head_in(source, staged_.q, head), dout = head_in(source, staged_.dout, head);
      Var lses = number_in(source, staged_.lse, head), deltas = number_in(source, staged_.delta, head);
      return b_.for_loop(first, end, block_n, of_heads, [&](Var row, const std::vector<Var>& sums) {
        QueryFacts facts;
        facts.lse = attention_backward_op::load_lse(b_, lses, row, block_n);
        facts.delta = b_.load(deltas, {row}, {block_n});
        const auto visible = [&] {
          Var queries = down(b_, numbers_from(b_, row, block_n), tile_.block, block_n);
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
    Var head = tile / row_blocks_, row = (row_blocks_ - 1 - tile % row_blocks_) * tile_.block;
    b_.when(may_begin(b_, ex_, schedule_, tile, row < own_rows_), [&] {
      const RowPieces<Var> own = positions_.of(ex_.rank());
      QueryBlock block;
      block.kv_head = head / a_.group();
      block.queries = b_.load(head_of(v_.q, own_rows_, head), {row, 0}, {tile_.block, a_.head_dim});
      block.dout = b_.load(head_of(v_.dout, own_rows_, head), {row, 0}, {tile_.block, a_.head_dim});
      block.facts.lse = attention_backward_op::load_lse(b_, number_of(v_.lse, own_rows_, head), row, tile_.block);
      block.facts.delta = attention_backward_op::load_delta(b_, head_of(v_.out, own_rows_, head), row, block.dout);
      block.last = positions_.position(own, b_.min(row + tile_.block, own_rows_) - 1);
      block.positions = positions_.position(positions_.in_i32(own), numbers_from(b_, row, tile_.block));
      Var zero = b_.full({tile_.block, a_.head_dim}, 0.0);
      Var sum = b_.for_loop(0, ex_.world_size(), 1, {zero}, [&](Var turn, const std::vector<Var>& before) {
        return after_keys(block, turn, tile, before);
      })[0];
      b_.store(head_of(v_.dq, own_rows_, head), {row, 0}, to_storage(b_, sum * a_.scale, a_.dtype));
    });
  }

  /// With one rank's keys up to the last one that a query of the block sees, chunk by chunk.
  std::vector<Var> after_keys(const QueryBlock& block, Var turn, Var tile, const std::vector<Var>& before) {
    const int64_t block_n = tile_.block_n, chunk_rows = schedule_.chunk_rows;
    Source source = source_of(turn);
    Var end = source.num_rows, seen = b_.cast(end, DType::i32);
    if (a_.causal) {
      end = positions_.num_until(source.pieces, block.last);
      seen = positions_.num_until(positions_.in_i32(source.pieces), block.positions);
      seen = across(b_, seen, tile_.block, block_n);
    }
    return b_.for_loop(0, end, chunk_rows, before, [&](Var first, const std::vector<Var>& of_chunks) {
      Var chunk = first / chunk_rows;
      Var has_come = await(source, chunk, chunk + 1, tile);
      Var last = b_.select(has_come, b_.min(first + chunk_rows, end), first);
      Var k = head_in(source, 0, block.kv_head), v = head_in(source, staged_.v, block.kv_head);
      return b_.for_loop(first, last, block_n, of_chunks, [&](Var key, const std::vector<Var>& sum) {
        const auto visible = [&] { return down(b_, numbers_from(b_, key, block_n), tile_.block, block_n) < seen; };
        return std::vector{
            add_keys(b_, a_, block.queries, block.dout, block.facts, k, v, key, block_n, visible, sum[0])};
      });
    });
  }

  KernelBuilder& b_;
  const ContextAttentionBackward& op_;
  const Config& c_;
  const ExchangeShape& exchange_;
  const AttentionBackward a_ = plain_of<AttentionBackward>(op_);
  const AttentionBackward::Tile tile_ = tile_of(a_, c_);
  const TransferSchedule schedule_ = TransferSchedule::from(c_);
  const StagedRow staged_{op_};
  // The members from here on declare the kernel's parameters, in their order.
  const ContextAttentionBackward::Tensors<Var> v_ = views_of(op_, b_);
  Var sequence_ = b_.view("sequence", DType::i8, {kDynamic});
  Exchange ex_{b_, op_.protocol(c_), exchange_, declare_channel(b_), b_.size(sequence_, 0)};
  const RankPositions positions_{b_, op_.layout, ex_.world_size(), ex_.length()};
  Var row_blocks_, own_rows_;
};

/// What is known of the whole sequence of one head, in its order.
struct Whole {
  std::vector<double> k, v;
  ReferenceQueries queries;
};

/// The rows of all ranks: own ones from the tensors, the rows of peers from the staging.
class Rows {
 public:
  Rows(const ContextAttentionBackward& op, const Problem& p, const ContextAttentionBackward::Args& t)
      : op_(op), p_(p), t_(t), a_(plain_of<AttentionBackward>(op)), staged_(op) {}

  Whole of(int64_t head) const {
    const int64_t kv_head = head / a_.group(), dim = a_.head_dim;
    Whole whole;
    for (int64_t position = 0; position < p_.symbols[0]; ++position) {
      const RowPlace place = place_of_row(op_.layout, position, p_.symbols[0], op_.ranks.size());
      const bool is_own = place.rank == op_.ranks.longest();
      const auto append = [&](std::vector<double>& to, const Tensor& own, int64_t column, int64_t of_head) {
        const std::vector<double> row = read_row(is_own ? own : staged(place), place.row);
        const auto first = row.begin() + (is_own ? 0 : column) + of_head * dim;
        to.insert(to.end(), first, first + dim);
      };
      append(whole.k, t_.k, 0, kv_head);
      append(whole.v, t_.v, staged_.v, kv_head);
      append(whole.queries.q, t_.q, staged_.q, head);
      append(whole.queries.dout, t_.dout, staged_.dout, head);
      const std::vector<double> numbers = read_row(is_own ? t_.lse : staged(place, DType::f32), place.row);
      whole.queries.lse.push_back(numbers[static_cast<size_t>(head + (is_own ? 0 : staged_.lse))]);
      whole.queries.delta.push_back(is_own ? delta(place.row, head)
                                           : numbers[static_cast<size_t>(head + staged_.delta)]);
    }
    return whole;
  }

 private:
  Tensor staged(const RowPlace& place, std::optional<DType> as = {}) const {
    return staged_rows(p_, exchange_of(op_), 0, place.rank, place.row + 1, 0, as);
  }
  double delta(int64_t row, int64_t head) const {
    const std::vector<double> out = read_row(t_.out, row), dout = read_row(t_.dout, row);
    double sum = 0;
    for (int64_t i = head * a_.head_dim; i < (head + 1) * a_.head_dim; ++i)
      sum += out[static_cast<size_t>(i)] * dout[static_cast<size_t>(i)];
    return sum;
  }

  const ContextAttentionBackward& op_;
  const Problem& p_;
  const ContextAttentionBackward::Args& t_;
  const AttentionBackward a_;
  const StagedRow staged_;
};

struct ContextKernel {
  ContextAttentionBackward op;

  void build(KernelBuilder& b, const Config& c, const Target&, const ExchangeShape& exchange) const {
    Builder(b, op, c, exchange).build();
  }

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
      const Whole whole = Rows(op, p, t).of(head);
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
