// kernels/seqpar/operations/context_attention.cpp -- see seqtile/ops/ranks.h.
// SPDX-License-Identifier: Apache-2.0
//
// A rank's queries stay where they are; its keys and values go to every peer, side by side in one row of the staging,
// so that one flag stands for both. A program takes block_m queries of one head through the keys of its own rank and
// then of rank + 1, rank + 2, ..., with a running softmax in f32 from the first key to the last. That order is fixed,
// whoever is late, and blocks of keys start at a rank's first key: neither arrival nor chunk size changes a bit.
//
// Programs, in order: those that send this rank's keys and values to its peers, chunk by chunk; the tiles of queries,
// which await a peer's chunk when they come to it; one that awaits the rest, also what causality hides from everyone
// here. Keys beyond a rank's rows are left out by the bounds of its view: they are not multiplied by zero.
#include "seqtile/ops/ranks.h"

#include <algorithm>

#include "kernels/attention/attention_parts.h"
#include "kernels/seqpar/exchange/rank_op.h"
#include "kernels/seqpar/exchange/rank_problem.h"
#include "kernels/seqpar/exchange/row_layout.h"
#include "kernels/seqpar/patterns/context_op.h"
#include "seqtile/kernel.h"
#include "seqtile/ops/attention.h"

namespace seqtile::kernels::seqpar {

using attention::Keys;
using attention::Running;
using autotune::Config;
using autotune::Problem;

namespace {

using Build = ContextBuild<ContextAttentionForward, AttentionForward>;

class Builder : Build {
 public:
  explicit Builder(const RankBuild& given) : Build(given) {}

  void build() {
    Var row_blocks = b.cdiv(ex.length(), ex.world_size() * t.block_m);
    Var id = b.program_id(0), tiles = row_blocks * s.heads, use = id - schedule.push_programs;
    run_program(b, ex, id, {"push", schedule.push_programs, [&](Var i) { push(i); }}, use,
                {"use", tiles, [&](Var i) { compute(i, row_blocks); }});
    Var rows = ex.num_rows(ex.rank());  // a graph's tensors have more
    std::vector<Var> outputs{rows_of(b, views.out, 0, rows)};
    if (op.lse) outputs.push_back(rows_of(b, views.lse, 0, rows));
    ex.leave(outputs);
  }

 private:
  void push(Var program) {
    push_rows(b, ex, ex.world_size() - 1, program, schedule, [&](Var) {
      Var rows = ex.num_rows(ex.rank()), k = rows_of(b, views.k, 0, rows);
      return std::vector{Part{k}, Part{rows_of(b, views.v, 0, rows), s.kv_heads * s.head_dim}};
    });
  }

  /// Some queries of one head, from a row on.
  struct Queries {
    Var head, row, last, positions;  ///< position of the last one; of all [block_m], i32
  };

  void compute(Var tile, Var row_blocks) {
    // Late queries see the most keys under a causal mask: they go first, so that the short programs fill up the end.
    Var head = tile / row_blocks, row = (row_blocks - 1 - tile % row_blocks) * t.block_m;
    const RowPieces<Var> own = positions.of(ex.rank());
    b.when(may_begin(b, ex, schedule, tile, row < own.num_rows), [&] {
      Queries queries;
      queries.head = head, queries.row = row;
      queries.last = positions.position(own, b.min(row + t.block_m, own.num_rows) - 1);
      queries.positions = positions.position(positions.in_i32(own), attention::numbers_from(b, row, t.block_m));
      const Running nothing(b, t.block_m, s.head_dim);
      const Running seen(b.for_loop(0, ex.world_size(), 1, nothing.carried(), [&](Var turn, const auto& carried) {
        return after_rank(queries, turn, tile, Running(carried)).carried();
      }));
      Var rows = ex.num_rows(ex.rank()), out = head_of(views.out, rows, head);
      b.store(out, {row, 0}, to_storage(b, attention::normalized(b, seen), op.dtype));
      if (op.lse) b.store(rows_of(b, views.lse, 0, rows), {row, head}, b.expand(attention::log_sum_exp(b, seen), 1));
    });
  }

  /// How many of a rank's keys, its first ones, a query at `position` sees.
  Var num_seen(const RowPieces<Var>& p, Var position) {
    return s.causal ? positions.num_until(p, position) : p.num_rows;
  }

  /// Of one rank its keys up to the last one that a query of the tile sees.
  Running after_rank(const Queries& queries, Var turn, Var tile, const Running& before) {
    Var source = (ex.rank() + turn) % ex.world_size(), is_own = b.compare(Compare::eq, turn, 0);
    const RowPieces<Var> p = positions.of(source);
    Var end = num_seen(p, queries.last), seen = num_seen(positions.in_i32(p), queries.positions);
    const auto visible = [&](Var first_key) {
      Var key = attention::column_numbers(b, first_key, t.block_m, t.block_n);
      return key < (s.causal ? across(b, seen, t.block_m, t.block_n) : seen);
    };
    const int64_t chunk_rows = schedule.chunk_rows;
    Var step = b.select(is_own, b.max(end, 1), chunk_rows);
    return Running(b.for_loop(0, end, step, before.carried(), [&](Var first, const auto& carried) {
      Var chunk = first / chunk_rows, last = b.min(first + step, end);
      Var has_come = ex.await(0, source, chunk, b.select(is_own, chunk, chunk + 1), tile);
      const Keys keys = keys_of(source, is_own, p.num_rows, queries.head / s.group());
      // Not once before all loops: what would stay in registers through them is not far.
      Var q = head_of(views.q, ex.num_rows(ex.rank()), queries.head);
      Var tile_of_q = b.load(q, {queries.row, 0}, {t.block_m, s.head_dim});
      return attention::attend(b, s, keys, tile_of_q, first, b.select(has_come, last, first), t.block_n, visible,
                               Running(carried))
          .carried();
    }));
  }

  Keys keys_of(Var source, Var is_own, Var rows, Var kv_head) {
    Var staged = ex.source(0, source, rows);
    Var k = b.select(is_own, head_of(views.k, rows, kv_head), head_of(staged, rows, kv_head));
    Var v = b.select(is_own, head_of(views.v, rows, kv_head), head_of(staged, rows, kv_head + s.kv_heads));
    return {k, v};
  }
};

struct ContextKernel {
  using Rows = ContextAttentionForward::Tensors<std::vector<double>>;
  ContextAttentionForward op;

  void build(const RankBuild<ContextAttentionForward>& given) const { Builder(given).build(); }

  /// Those that push, the tiles of the rank's queries, and one more. Of zigzag a rank has up to 2 ceil(length / 2 P)
  /// rows: as block_m is even, in as many blocks as of ceil(length / P).
  autotune::SizeExpr programs(const Config& c) const {
    return {op.heads, {{0, op.ranks.world_size * c.get_int("block_m")}}, c.get_int("push_programs") + 1};
  }

  ContextOp plans() const {
    return {plain_of<AttentionForward>(op).workload(), op.ranks, op.layout,
            [this](const Config& tile, const Target& target) { return leaves_room(tile, target); }};
  }

  void reference(const Problem& p, const ContextAttentionForward::Args& t, std::span<const int64_t> rows,
                 Rows& out) const {
    const auto s = plain_of<AttentionForward>(op);
    const int64_t length = p.symbols[0], dim = s.head_dim;
    out.out.resize(rows.size() * static_cast<size_t>(s.heads * dim));
    out.lse.resize(rows.size() * static_cast<size_t>(s.heads));
    for (int64_t kv_head = 0; kv_head < s.kv_heads; ++kv_head) {
      const int64_t value_column = s.kv_heads * dim;  // of a staged row, behind the keys
      const std::vector<double> k = head_rows(p, t.k, 0, kv_head), v = head_rows(p, t.v, value_column, kv_head);
      for (size_t r = 0; r < rows.size(); ++r) {
        const std::vector<double> all = read_row(t.q, rows[r]);
        const int64_t position = position_of_row(op.layout, op.ranks.longest(), rows[r], length, op.ranks.size());
        for (int64_t head = kv_head * s.group(); head < (kv_head + 1) * s.group(); ++head) {
          const std::vector<double> q(all.begin() + head * dim, all.begin() + (head + 1) * dim);
          const attention::ReferenceRow row = attention::reference_row(s, q, k, v, 0, s.causal ? position + 1 : length);
          const auto slot = static_cast<int64_t>(r) * s.heads + head;
          std::ranges::copy(row.out, out.out.begin() + slot * dim);
          out.lse[static_cast<size_t>(slot)] = row.lse;
        }
      }
    }
  }

 private:
  /// Beside what they know of the ranks, which on Hopper takes fewer registers where it is the same in all threads of a
  /// block, threads hold the sums, scores and weights of a tile; of f32 also the halves of keys and values.
  bool leaves_room(const Config& tile, const Target& target) const {
    const int64_t most_values = target.has_wgmma ? 112 : 96;  // of a thread
    const int64_t block_n = tile.get_int("block_n");
    if (op.dtype == DType::f32 && target.has_wgmma && block_n * op.head_dim >= 8192) return false;
    return tile.get_int("block_m") * (op.head_dim + block_n * 3 / 2) <= most_values * 32 * tile.get_int("num_warps");
  }

  /// Keys or values of one head in the order of the sequence, [length, head_dim]. `column`: their first one in a row
  /// that a peer sends.
  std::vector<double> head_rows(const Problem& p, const Tensor& own, int64_t column, int64_t kv_head) const {
    std::vector<double> rows;
    for (int64_t position = 0; position < p.symbols[0]; ++position) {
      const std::vector<double> row = gathered_row(p, op.ranks, exchange_of(op), own, position, column);
      const auto first = row.begin() + kv_head * op.head_dim;
      rows.insert(rows.end(), first, first + op.head_dim);
    }
    return rows;
  }
};

}  // namespace

void ContextAttentionForward::fields(FieldVisitor& v) {
  ranks.fields(v);
  attention::visit_fields(v, heads, kv_heads, head_dim, causal, scale);
  v.choice("layout", layout, kRowLayoutNames);
  v.flag("lse", lse);
}
ExchangeShape ContextAttentionForward::exchange(int64_t chunk_rows) const {
  return context_exchange(*this, 2 * kv_heads * head_dim, chunk_rows);
}
const Protocol& ContextAttentionForward::protocol(const Config& config) {
  return protocol_of_gather(transfer_of(config));
}

autotune::OpDef context_attention_forward() {
  return rank_op<ContextKernel>("own rows of softmax(q k^T) v over the keys of all ranks, in one launch of each", 5);
}

}  // namespace seqtile::kernels::seqpar
