// kernels/attention/attention_backward_kernels.cpp -- the two kinds of programs of attention_backward.
// SPDX-License-Identifier: Apache-2.0
//
// Weights are computed again from the scores and lse. They are chosen after the exponential, so that a query that saw
// no key, whose lse is minus infinity, leaves no NaN behind. The program of a block of keys works on transposed scores
// [keys, queries]: both of its sums then have the keys as rows, as the other program's has the queries.
#include <numbers>

#include "kernels/attention/attention_backward_parts.h"
#include "kernels/attention/attention_parts.h"
#include "seqtile/kernel.h"

namespace seqtile::kernels {
namespace attention_backward_op {
namespace {

/// Products of two tiles whose rows lie along the head, [rows of a, rows of b].
Var row_products(KernelBuilder& b, Var a, Var other) {
  return b.dot(a, b.trans(other), b.full({a.type().shape[0], other.type().shape[0]}, 0.0));
}

}  // namespace

Var load_lse(KernelBuilder& b, Var all, Var row, int64_t rows) {
  return b.load(all, {row}, {rows}) * std::numbers::log2e;
}

Var load_delta(KernelBuilder& b, Var out, Var row, Var dout) {
  const auto size = dout.type().dims();
  return b.sum(to_f32(b, dout) * to_f32(b, b.load(out, {row, 0}, {size[0], size[1]})), 1);
}

std::vector<Var> add_queries(KernelBuilder& b, const AttentionBackward& s, Var keys, Var values, Var q, Var dout,
                             Var row, int64_t block_n, const QueryFacts& facts, const std::function<Var()>& visible,
                             const std::vector<Var>& before) {
  const int64_t block = keys.type().shape[0];
  const auto load = [&](Var rows) { return b.load(rows, {row, 0}, {block_n, s.head_dim}); };
  Var score = row_products(b, keys, load(q));
  Var weight = b.unary(ir::OpKind::exp2, score * (s.scale * std::numbers::log2e) - down(b, facts.lse, block, block_n));
  weight = b.select(visible(), weight, 0.0);
  Var slope = weight * (row_products(b, values, load(dout)) - down(b, facts.delta, block, block_n));
  Var dv = b.dot(to_storage(b, weight, s.dtype), load(dout), before[1]);
  Var dk = b.dot(to_storage(b, slope, s.dtype), load(q), before[0]);
  return {dk, dv};
}

Var add_keys(KernelBuilder& b, const AttentionBackward& s, Var queries, Var dout, const QueryFacts& facts, Var k, Var v,
             Var key, int64_t block_n, const std::function<Var()>& visible, Var before) {
  const int64_t block = queries.type().shape[0];
  const auto load = [&](Var rows) { return b.load(rows, {key, 0}, {block_n, s.head_dim}); };
  Var score = row_products(b, queries, load(k));
  Var weight =
      b.unary(ir::OpKind::exp2, score * (s.scale * std::numbers::log2e) - across(b, facts.lse, block, block_n));
  weight = b.select(visible(), weight, 0.0);
  Var slope = weight * (row_products(b, dout, load(v)) - across(b, facts.delta, block, block_n));
  return b.dot(to_storage(b, slope, s.dtype), load(k), before);
}

namespace {

using Views = AttentionBackward::Tensors<Var>;
using Tile = AttentionBackward::Tile;
using attention::numbers_from;

/// Where one sequence lies.
struct Sequence : attention::SequenceRows {
  Sequence(KernelBuilder& b, const Views& v, Var index, const Target& target)
      : SequenceRows(b, target, v, index), offset(kv_len - q_len) {}
  Var offset;  ///< query i stands at position i + offset
};

QueryFacts facts_of(KernelBuilder& b, const Views& v, const Sequence& sequence, Var head, Var row, Var dout) {
  const int64_t rows = dout.type().shape[0];
  QueryFacts facts;
  Var all = b.slice(b.at(v.lse, 1, head), {sequence.q_first}, {sequence.q_len});
  facts.lse = load_lse(b, all, row, rows);
  facts.delta = load_delta(b, sequence.queries(b, v.out, head), row, dout);
  return facts;
}

/// One program: dk and dv of `block` keys of one key head.
void build_keys(KernelBuilder& b, const AttentionBackward& s, const Tile& tile, const Views& v,
                const Sequence& sequence) {
  const int64_t block = tile.block, block_n = tile.block_n;
  Var key = b.program_id(0) * block, kv_head = b.program_id(1);
  Var keys = b.load(sequence.keys(b, v.k, kv_head), {key, 0}, {block, s.head_dim});
  Var values = b.load(sequence.keys(b, v.v, kv_head), {key, 0}, {block, s.head_dim});
  Var key_numbers = across(b, numbers_from(b, key, block), block, block_n);

  // Blocks of queries that see a key of these, of one head of the group after the other.
  Var first = b.constant(DType::i64, int64_t{0});
  if (s.causal) first = b.max(key - sequence.offset, 0) / block_n * block_n;
  Var blocks = b.max(b.cdiv(sequence.q_len - first, block_n), 0);
  blocks = b.select(key < sequence.kv_len, blocks, 0);
  Var zero = b.full({block, s.head_dim}, 0.0);
  const auto sums = b.for_loop(0, blocks * s.group(), 1, {zero, zero}, [&](Var turn, std::vector<Var> before) {
    Var head = kv_head * s.group() + turn / blocks, row = first + turn % blocks * block_n;
    Var q = sequence.queries(b, v.q, head), dout = sequence.queries(b, v.dout, head);
    const QueryFacts facts = facts_of(b, v, sequence, head, row, b.load(dout, {row, 0}, {block_n, s.head_dim}));
    return add_queries(
        b, s, keys, values, q, dout, row, block_n, facts,
        [&] {
          Var position = s.causal ? row + sequence.offset : row;
          Var queries = down(b, numbers_from(b, position, block_n), block, block_n);
          return s.causal ? key_numbers <= queries : queries < b.cast(sequence.q_len, DType::i32);
        },
        before);
  });
  b.store(sequence.keys(b, v.dk, kv_head), {key, 0}, to_storage(b, sums[0] * s.scale, s.dtype));
  b.store(sequence.keys(b, v.dv, kv_head), {key, 0}, to_storage(b, sums[1], s.dtype));
}

/// One program: dq of `block` queries of one head.
void build_queries(KernelBuilder& b, const AttentionBackward& s, const Tile& tile, const Views& v,
                   const Sequence& sequence) {
  const int64_t block = tile.block, block_n = tile.block_n;
  // Late queries see the most keys under a causal mask: they go first.
  Var row = (b.num_programs(0) - b.program_id(0) - 1) * block, head = b.program_id(1) - s.kv_heads;
  Var kv_head = head / s.group();
  Var queries = b.load(sequence.queries(b, v.q, head), {row, 0}, {block, s.head_dim});
  Var dout = b.load(sequence.queries(b, v.dout, head), {row, 0}, {block, s.head_dim});
  const QueryFacts facts = facts_of(b, v, sequence, head, row, dout);
  Var position = across(b, numbers_from(b, row + sequence.offset, block), block, block_n);
  Var k_rows = sequence.keys(b, v.k, kv_head), v_rows = sequence.keys(b, v.v, kv_head);

  Var end = sequence.kv_len;
  if (s.causal) end = b.min(end, row + sequence.offset + block);
  end = b.select(row < sequence.q_len, end, 0);
  Var zero = b.full({block, s.head_dim}, 0.0);
  const auto sums = b.for_loop(0, end, block_n, {zero}, [&](Var key, std::vector<Var> before) {
    const auto visible = [&] {
      Var keys = down(b, numbers_from(b, key, block_n), block, block_n);
      return s.causal ? keys <= position : keys < b.cast(sequence.kv_len, DType::i32);
    };
    return std::vector{add_keys(b, s, queries, dout, facts, k_rows, v_rows, key, block_n, visible, before[0])};
  });
  b.store(sequence.queries(b, v.dq, head), {row, 0}, to_storage(b, sums[0] * s.scale, s.dtype));
}

}  // namespace
}  // namespace attention_backward_op

void AttentionBackward::build(KernelBuilder& b, const Tensors<Var>& v, const Tile& tile, const Target& target) const {
  using namespace attention_backward_op;
  const Sequence sequence(b, v, b.program_id(2), target);
  b.when(
      b.program_id(1) < kv_heads, [&] { build_keys(b, *this, tile, v, sequence); },
      [&] { build_queries(b, *this, tile, v, sequence); });
}

}  // namespace seqtile::kernels
