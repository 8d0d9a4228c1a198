// kernels/attention/attention_backward_parts.h -- what kernels of attention's gradients are made of.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <functional>
#include <vector>

#include "seqtile/builder.h"
#include "seqtile/ops/attention.h"

namespace seqtile::kernels::attention_backward_op {

/// The row statistics of a block of queries of one head, [rows] each.
struct QueryFacts {
  Var lse, delta;  ///< lse in units of log2
};
Var load_lse(KernelBuilder& b, Var all, Var row, int64_t rows);  ///< from lse of all queries, as it is stored
Var load_delta(KernelBuilder& b, Var out, Var row, Var dout);    ///< from out of all queries and their block of dout

/// {dk / scale, dv} of a block of keys, [block, head_dim] of f32, with what `block_n` queries from `row` on add. q and
/// dout: views of one head of all queries; `visible` gives an i1 tile [block, block_n].
std::vector<Var> add_queries(KernelBuilder& b, const AttentionBackward& s, Var keys, Var values, Var q, Var dout,
                             Var row, int64_t block_n, const QueryFacts& facts, const std::function<Var()>& visible,
                             const std::vector<Var>& before);
/// dq / scale of a block of queries, with what `block_n` keys from `key` on add. k and v: views of one head of all
/// keys; `visible` gives an i1 tile [block, block_n].
Var add_keys(KernelBuilder& b, const AttentionBackward& s, Var queries, Var dout, const QueryFacts& facts, Var k, Var v,
             Var key, int64_t block_n, const std::function<Var()>& visible, Var before);

/// In plain double loops: queries of one head, [count, head_dim] and [count], and what sums over one side of the pairs
/// [lo, hi) add. A key and a value are head_dim numbers, `keys` and `values` those of all keys.
struct ReferenceQueries {
  std::vector<double> q, dout, lse, delta;
};
void add_reference_keys(const AttentionBackward& s, const ReferenceQueries& queries, int64_t query,
                        const std::vector<double>& keys, const std::vector<double>& values, int64_t lo, int64_t hi,
                        double* dq);
void add_reference_queries(const AttentionBackward& s, const ReferenceQueries& queries, int64_t lo, int64_t hi,
                           const double* key, const double* value, double* dk, double* dv);
/// The log_sum_exp of num_keys normal scores of deviation 1: the weights of made-up scores then add up to about 1.
double usual_lse(double num_keys);

}  // namespace seqtile::kernels::attention_backward_op
