// kernels/attention/attention_kernels.cpp -- the kernels of attention_forward: blocks of queries, and split-KV decode.
// SPDX-License-Identifier: Apache-2.0
//
// Scores are kept in units of log2, so that one exp2 per score is all the softmax needs. A row's maximum starts at a
// large negative number, not at minus infinity: exp2(masked - maximum) is then 0 and never NaN, also for rows that
// have seen no key yet.
#include <limits>
#include <numbers>
#include <optional>

#include "kernels/attention/attention_parts.h"
#include "seqtile/kernel.h"

namespace seqtile::kernels {
namespace attention {
namespace {

constexpr double kNothingSeen = -1e30;
constexpr double kMasked = -std::numeric_limits<double>::infinity();

Var index_at(KernelBuilder& b, Var view, Operand i) { return b.cast(b.load_scalar(view, {i}), DType::i64); }

}  // namespace

SequenceRows::SequenceRows(KernelBuilder& b, const Target& target, Var q, Var k, Var q_start, Var kv_start,
                           Var kv_lengths, Var index)
    : q_first(index_at(b, q_start, index)),
      q_len(index_at(b, q_start, index + 1) - q_first),
      kv_len(index_at(b, kv_lengths, index)),
      kv_first(index_at(b, kv_start, index)) {
  if (!target.is_gpu()) return;
  const auto keep_inside = [&](Var view, Var& first, Var& count) {
    Var rows = b.size(view, 0);
    first = b.min(b.max(first, 0), rows);
    count = b.min(b.max(count, 0), rows - first);
  };
  keep_inside(q, q_first, q_len);
  keep_inside(k, kv_first, kv_len);
}

Running::Running(KernelBuilder& b, int64_t rows, int64_t head_dim)
    : top(b.full({rows}, kNothingSeen)), sum(b.full({rows}, 0.0)), acc(b.full({rows, head_dim}, 0.0)) {}

Var numbers_from(KernelBuilder& b, Var first, int64_t count) { return b.iota(count) + b.cast(first, DType::i32); }

Var column_numbers(KernelBuilder& b, Var first, int64_t rows, int64_t columns) {
  return down(b, numbers_from(b, first, columns), rows, columns);
}

namespace {

Running attend_block(KernelBuilder& b, const AttentionForward& s, const Keys& keys, Var q, Var first_key, Var visible,
                     const Running& before) {
  const int64_t rows = visible.type().shape[0], block_n = visible.type().shape[1];
  Var k = b.load(keys.k, {first_key, 0}, {block_n, s.head_dim});
  Var score = b.dot(q, b.trans(k), b.full({rows, block_n}, 0.0));
  // Where the scale keeps the order of scores, it waits for the subtraction of the maximum: one FMA a score.
  const double unit = s.soft_cap > 0 ? s.soft_cap * std::numbers::log2e : s.scale * std::numbers::log2e;
  const bool is_late = unit > 0;
  if (s.soft_cap > 0) score = b.unary(ir::OpKind::tanh, score * (s.scale / s.soft_cap));
  if (!is_late) score = score * unit;
  score = b.select(visible, score, kMasked);

  Running now = before;
  Var top = b.reduce_max(score, 1);
  now.top = b.max(before.top, is_late ? top * unit : top);
  Var fade = b.unary(ir::OpKind::exp2, before.top - now.top);
  Var below = across(b, now.top * -1.0, rows, block_n);
  Var weight = b.unary(ir::OpKind::exp2, is_late ? b.fma(score, unit, below) : score + below);
  now.sum = before.sum * fade + b.sum(weight, 1);
  Var v = b.load(keys.v, {first_key, 0}, {block_n, s.head_dim});
  now.acc = b.dot(to_storage(b, weight, v.type().dtype), v, before.acc * across(b, fade, rows, s.head_dim));
  return now;
}

}  // namespace

Running attend(KernelBuilder& b, const AttentionForward& s, const Keys& keys, Var q, Var first_key, Var end,
               int64_t block_n, const std::function<Var(Var first_key)>& visible, const Running& before) {
  return Running(b.for_loop(first_key, end, block_n, before.carried(), [&](Var key, const std::vector<Var>& carried) {
    return attend_block(b, s, keys, q, key, visible(key), Running(carried)).carried();
  }));
}

Var normalized(KernelBuilder& b, const Running& seen) {
  Var inverse = b.select(seen.sum > 0.0, 1.0 / seen.sum, 0.0);
  return seen.acc * across(b, inverse, seen.acc.type().shape[0], seen.acc.type().shape[1]);
}

Var log_sum_exp(KernelBuilder& b, const Running& seen) {
  return (seen.top + b.unary(ir::OpKind::log2, seen.sum)) * std::numbers::ln2;
}

namespace {

using Views = AttentionForward::Tensors<Var>;
using Tile = AttentionForward::Tile;

Keys keys_of(KernelBuilder& b, const SequenceRows& sequence, const Views& v, Var kv_head) {
  Var k = sequence.keys(b, v.k, kv_head);
  return {k, sequence.keys(b, v.v, kv_head)};
}

/// A program's block of queries and its head. Late queries see the most keys under a causal mask: they go first, so
/// that the short programs fill up the end. GPUs hand out programs in the order of their numbers: there the heads take
/// turns, in sections whose keys stay in the L2.
std::pair<Var, Var> block_and_head(KernelBuilder& b, const AttentionForward& s, const Target& target) {
  constexpr int64_t kMostHeads = 16;
  Var blocks = b.num_programs(0), block = b.program_id(0), head = b.program_id(1);
  if (target.is_gpu()) {
    int64_t heads = s.group();
    for (int64_t more = s.group(); more <= std::max(kMostHeads, s.group()); more += s.group())
      if (s.heads % more == 0) heads = more;
    Var number = head * blocks + block, turn = number / heads;
    block = turn % blocks;
    head = turn / blocks * heads + number % heads;
  }
  return {blocks - block - 1, head};
}

/// One program: block_m queries of one head of one sequence.
void build_blocks(KernelBuilder& b, const AttentionForward& s, const Views& v, const Tile& tile, const Target& target) {
  const int64_t block_m = tile.block_m, block_n = tile.block_n;
  const auto [block, head] = block_and_head(b, s, target);
  Var row = block * block_m;
  Var kv_head = head / s.group(), index = b.program_id(2);
  const SequenceRows sequence(b, target, v, index);
  const Keys keys = keys_of(b, sequence, v, kv_head);
  Var offset = sequence.kv_len - sequence.q_len;  // query i stands at position i + offset

  Var first_key = b.constant(DType::i64, int64_t{0}), end = sequence.kv_len;
  if (s.causal) end = b.min(end, row + offset + block_m);
  if (s.window) first_key = b.max(row + offset + (1 - s.window), 0) / block_n * block_n;
  end = b.select(row < sequence.q_len, end, first_key);  // sequences shorter than the longest: nothing to do

  Var queries = b.load(sequence.queries(b, v.q, head), {row, 0}, {block_m, s.head_dim});
  Var position = across(b, numbers_from(b, row + offset, block_m), block_m, block_n);
  const auto visible = [&](Var key) {
    Var other = column_numbers(b, key, block_m, block_n);
    Var seen = s.causal ? other <= position : other < b.cast(sequence.kv_len, DType::i32);
    return s.window ? b.logical_and(seen, other > position - s.window) : seen;
  };
  const Running seen = attend(b, s, keys, queries, first_key, end, block_n, visible, Running(b, block_m, s.head_dim));

  Var out = sequence.queries(b, v.out, head);
  Var lse = b.slice(v.lse, {sequence.q_first, 0}, {sequence.q_len, s.heads});
  b.store(out, {row, 0}, to_storage(b, normalized(b, seen), s.dtype));
  b.store(lse, {row, head}, b.expand(log_sum_exp(b, seen), 1));
}

/// Partial results of the splits of one group of heads, in workspaces; the program that arrives last merges them.
struct Partials {
  Partials(KernelBuilder& b, const AttentionForward& s, int64_t splits) : b(b), s(s), splits(splits) {
    acc = b.view("partial_acc", DType::f32, {kDynamic});
    top = b.view("partial_top", DType::f32, {kDynamic});
    sum = b.view("partial_sum", DType::f32, {kDynamic});
    arrived = b.view("arrived", DType::i32, {kDynamic});
  }
  void put(Var slot, const Running& seen) const {
    b.store(acc, {slot * (s.group() * s.head_dim)}, b.reshape(seen.acc, {s.group() * s.head_dim}));
    b.store(top, {slot * s.group()}, seen.top);
    b.store(sum, {slot * s.group()}, seen.sum);
  }
  Running get(Var slot) const {
    Var flat = b.load(acc, {slot * (s.group() * s.head_dim)}, {s.group() * s.head_dim});
    return Running({b.load(top, {slot * s.group()}, {s.group()}), b.load(sum, {slot * s.group()}, {s.group()}),
                    b.reshape(flat, {s.group(), s.head_dim})});
  }
  /// The softmax over the keys of all splits, of which the first has slot `first`.
  Running merged(Var first) const {
    return Running(b.for_loop(
        0, splits, 1, Running(b, s.group(), s.head_dim).carried(), [&](Var i, const std::vector<Var>& carried) {
          const Running left(carried), right = get(first + i);
          Running both = left;
          both.top = b.max(left.top, right.top);
          Var keep = b.unary(ir::OpKind::exp2, left.top - both.top),
              take = b.unary(ir::OpKind::exp2, right.top - both.top);
          both.sum = left.sum * keep + right.sum * take;
          both.acc =
              left.acc * across(b, keep, s.group(), s.head_dim) + right.acc * across(b, take, s.group(), s.head_dim);
          return both.carried();
        }));
  }
  KernelBuilder& b;
  const AttentionForward& s;
  int64_t splits;
  Var acc, top, sum, arrived;
};

/// One program: the query heads that share one key head, over one of `splits` parts of the sequence's keys.
void build_decode(KernelBuilder& b, const AttentionForward& s, const Views& v, const Tile& tile, const Target& target) {
  const int64_t splits = tile.splits, block_n = tile.block_n;
  std::optional<Partials> partials;
  if (splits > 1) partials.emplace(b, s, splits);

  Var split = b.program_id(0), kv_head = b.program_id(1), batch_index = b.program_id(2);
  const SequenceRows sequence(b, target, v, batch_index);
  const Keys keys = keys_of(b, sequence, v, kv_head);
  Var begin = b.constant(DType::i64, int64_t{0});
  if (s.window) begin = b.max(sequence.kv_len - s.window, 0);
  Var part = b.cdiv(b.cdiv(sequence.kv_len - begin, splits), block_n) * block_n;
  Var first_key = begin + split * part, end = b.min(sequence.kv_len, first_key + part);

  // The heads of the group; on GPUs none of them where the sequence has no query.
  Var first_head = kv_head * s.group();
  const auto query_heads = [&](Var view) {
    Var row = b.at(view, 0, sequence.q_first);
    if (!target.is_gpu()) return std::pair{row, first_head};
    std::vector<Operand> offsets{first_head}, sizes{b.select(sequence.q_len > 0, b.constant(DType::i64, s.group()), 0)};
    if (row.type().rank == 2) offsets.push_back(0), sizes.push_back(s.head_dim);
    return std::pair{b.slice(row, offsets, sizes), b.constant(DType::i64, int64_t{0})};
  };
  const auto [q_heads, q_head] = query_heads(v.q);
  Var q = b.load(q_heads, {q_head, 0}, {s.group(), s.head_dim});
  const auto visible = [&](Var key) {
    return column_numbers(b, key, s.group(), block_n) < b.cast(sequence.kv_len, DType::i32);
  };
  const Running seen = attend(b, s, keys, q, first_key, end, block_n, visible, Running(b, s.group(), s.head_dim));

  const auto finish = [&](const Running& all) {
    const auto [out, out_head] = query_heads(v.out);
    const auto [lse, lse_head] = query_heads(v.lse);
    b.store(out, {out_head, 0}, to_storage(b, normalized(b, all), s.dtype));
    b.store(lse, {lse_head}, log_sum_exp(b, all));
  };
  if (splits == 1) return finish(seen);
  Var pair = batch_index * s.kv_heads + kv_head, first_slot = pair * splits;
  partials->put(first_slot + split, seen);
  Var before_me = b.atomic("add", partials->arrived, {pair}, 1);
  b.if_then(b.compare(Compare::eq, before_me, splits - 1), [&] {
    b.store_scalar(partials->arrived, {pair}, 0);  // as the next launch expects it
    finish(partials->merged(first_slot));
    return std::vector<Var>{};
  });
}

}  // namespace
}  // namespace attention

std::vector<autotune::Workspace> AttentionForward::workspaces(const Tile& tile) const {
  if (!is_decode() || tile.splits == 1) return {};
  const auto per_sequence = [](int64_t elements) {
    return autotune::SizeExpr{elements, {{attention::Sizes::kBatchSymbol}}};
  };
  return {{"partial_acc", DType::f32, per_sequence(heads * tile.splits * head_dim)},
          {"partial_top", DType::f32, per_sequence(heads * tile.splits)},
          {"partial_sum", DType::f32, per_sequence(heads * tile.splits)},
          {"arrived", DType::i32, per_sequence(kv_heads)}};
}

void AttentionForward::build(KernelBuilder& b, const Tensors<Var>& v, const Tile& tile, const Target& target) const {
  is_decode() ? attention::build_decode(b, *this, v, tile, target) : attention::build_blocks(b, *this, v, tile, target);
}

}  // namespace seqtile::kernels
