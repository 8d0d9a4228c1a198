// kernels/attention/attention_parts.h -- what operations of attention are made of: fields, sequences, a softmax step.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <functional>
#include <vector>

#include "seqtile/builder.h"
#include "seqtile/ops/attention.h"

namespace seqtile::kernels::attention {

/// Visits the fields that all operations of attention have, in this order. A `scale` of 0 becomes 1 / sqrt(head_dim).
void visit_fields(FieldVisitor& v, int64_t& heads, int64_t& kv_heads, int64_t& head_dim, bool& causal, double& scale);
/// The first two of them, for other operations with query heads that share key heads.
void visit_heads(FieldVisitor& v, int64_t& heads, int64_t& kv_heads);

/// The values of Schema::symbols.
struct Sizes {
  explicit Sizes(std::span<const int64_t> symbols)
      : length(symbols[0]), tokens(symbols[1]), kv_tokens(symbols[2]), batch(symbols[kBatchSymbol]) {}
  static constexpr int kBatchSymbol = 3;
  int64_t length, tokens, kv_tokens, batch;
};
/// Pairs of a query and a key that it sees, of one head: all sequences as long as the average one. `window`: 0, all.
double visible_pairs(const Sizes& sizes, bool causal, int64_t window);

/// The smallest tile: its rows of queries and keys, its needs of a GPU's block, and the values that 4 warps hold.
struct SmallestTile {
  int64_t queries, keys, shared_bytes, values, most_values;
};
/// Errors: unsupported always, for a GPU whose blocks have no room for the smallest tile.
[[noreturn]] void refuse_head_dim(std::string_view operation, int64_t head_dim, DType dtype, const Target& target,
                                  const SmallestTile& tile);

/// Keys and values of one head as views [keys, head_dim].
struct Keys {
  Var k, v;
};

/// Where one sequence lies: rows of q and of k. On CPUs the call has checked the numbers (Schema::indices); on GPUs,
/// where it cannot, they are brought into the tensors here, and a sequence whose numbers are wrong has other rows.
struct SequenceRows {
  /// `v`: tensors of an operation with q, k, q_start, kv_start and kv_len.
  SequenceRows(KernelBuilder& b, const Target& target, const auto& v, Var index)
      : SequenceRows(b, target, v.q, v.k, v.q_start, v.kv_start, v.kv_len, index) {}
  SequenceRows(KernelBuilder& b, const Target& target, Var q, Var k, Var q_start, Var kv_start, Var kv_len, Var index);
  /// Rows of one head of tensors that lie as q, and as k.
  Var queries(KernelBuilder& b, Var view, Var head) const { return rows(b, view, head, q_first, q_len); }
  Var keys(KernelBuilder& b, Var view, Var head) const { return rows(b, view, head, kv_first, kv_len); }
  Var q_first, q_len, kv_len, kv_first;

 private:
  static Var rows(KernelBuilder& b, Var view, Var head, Var first, Var count) {
    return b.slice(b.at(view, 1, head), {first, 0}, {count, view.type().shape[2]});
  }
};

/// The softmax state of each row so far: maximum score (log2 units), sum of exp2(score - maximum), weighted values.
struct Running {
  Running(KernelBuilder& b, int64_t rows, int64_t head_dim);
  explicit Running(const std::vector<Var>& carried) : top(carried[0]), sum(carried[1]), acc(carried[2]) {}
  std::vector<Var> carried() const { return {top, sum, acc}; }
  Var top, sum, acc;
};

/// [count] of numbers, counted from `first`; and [rows, columns] of such column numbers.
Var numbers_from(KernelBuilder& b, Var first, int64_t count);
Var column_numbers(KernelBuilder& b, Var first, int64_t rows, int64_t columns);

/// Takes the keys [first_key, end) into account, block by block. `visible`, from the first key of a block, is an i1
/// tile [rows, block_n].
Running attend(KernelBuilder& b, const AttentionForward& op, const Keys& keys, Var q, Var first_key, Var end,
               int64_t block_n, const std::function<Var(Var first_key)>& visible, const Running& before);
/// The softmax's result [rows, head_dim] and the natural logarithm of its denominator [rows].
Var normalized(KernelBuilder& b, const Running& seen);
Var log_sum_exp(KernelBuilder& b, const Running& seen);

/// One query against the keys [lo, hi) of k and v, [keys, head_dim] each, in plain double loops.
struct ReferenceRow {
  std::vector<double> out;
  double lse;
};
ReferenceRow reference_row(const AttentionForward& op, const std::vector<double>& q, const std::vector<double>& k,
                           const std::vector<double>& v, int64_t lo, int64_t hi);
/// Rows [first, first + count) of one head of a tensor [rows, heads, head_dim].
std::vector<double> head_rows(const Tensor& tensor, int64_t first, int64_t count, int64_t head);

}  // namespace seqtile::kernels::attention
