// kernels/attention/attention_backward_shape.h -- what the parts of attention_backward share: static fields, grid,
// predictions.
// SPDX-License-Identifier: Apache-2.0
//
// The grid has two kinds of programs, told apart along its second axis. The first kv_heads of them take a block of keys
// and sum dk and dv over all queries that see it, of all query heads of the group. The others take a block of queries
// and sum dq over the keys that it sees. Both have blocks of `block` rows and go over the other side `block_n` rows at
// a time. With s = scale q k^T, p = exp(s - lse) and delta = sum(dout out) of a query:
//
//   dv = p^T dout     ds = p (dout v^T - delta)     dq = scale ds k     dk = scale ds^T q
#pragma once
#include <functional>
#include <vector>

#include "autotune/op_def.h"
#include "jit/ir/builder.h"

namespace seqtile::kernels::attention_backward_op {

/// The order of tensors and run-time symbols in the schema.
enum Arg { kQ, kK, kV, kOut, kLse, kDout, kQStart, kKvStart, kKvLen, kDq, kDk, kDv };
enum Symbol { kLength, kTokens, kKvTokens, kBatch };

struct Shape {
  explicit Shape(const autotune::Workload& w);
  int64_t heads, kv_heads, head_dim, group;  ///< group: query heads that share a key head
  bool causal;
  double scale;
};

/// What is known of a block of queries of one head, [rows] each.
struct QueryFacts {
  Var lse, delta;  ///< lse in units of log2
};
Var load_lse(KernelBuilder& b, Var all, Var row, int64_t rows);  ///< from lse of all queries, as it is stored
Var load_delta(KernelBuilder& b, Var out, Var row, Var dout);    ///< from out of all queries and their block of dout

/// {dk / scale, dv} of a block of keys, [block, head_dim] of f32, with what `block_n` queries from `row` on add. q and
/// dout: views of one head of all queries; `visible` gives an i1 tile [block, block_n].
std::vector<Var> add_queries(KernelBuilder& b, const Shape& s, DType dtype, Var keys, Var values, Var q, Var dout,
                             Var row, int64_t block_n, const QueryFacts& facts, const std::function<Var()>& visible,
                             const std::vector<Var>& before);
/// dq / scale of a block of queries, with what `block_n` keys from `key` on add. k and v: views of one head of all
/// keys; `visible` gives an i1 tile [block, block_n].
Var add_keys(KernelBuilder& b, const Shape& s, DType dtype, Var queries, Var dout, const QueryFacts& facts, Var k,
             Var v, Var key, int64_t block_n, const std::function<Var()>& visible, Var before);

void build(KernelBuilder& b, const autotune::Workload& w, const autotune::Config& config, const Target& target);

autotune::ConfigSpace config_space(const autotune::Workload& w, int64_t length, const Target& target);
autotune::Config default_config(const autotune::Workload& w, int64_t length, const Target& target);
double predict_us(const autotune::Workload& w, const autotune::Config& config, int64_t length, const Target& target);
autotune::GpuWork gpu_work(const autotune::Workload& w, const autotune::Config& config, int64_t length,
                           const Target& target);

/// In plain double loops: queries of one head, [count, head_dim] and [count], and what sums over one side of the pairs
/// [lo, hi) add. A key and a value are head_dim numbers, `keys` and `values` those of all keys.
struct ReferenceQueries {
  std::vector<double> q, dout, lse, delta;
};
void add_reference_keys(const Shape& s, const ReferenceQueries& queries, int64_t query, const std::vector<double>& keys,
                        const std::vector<double>& values, int64_t lo, int64_t hi, double* dq);
void add_reference_queries(const Shape& s, const ReferenceQueries& queries, int64_t lo, int64_t hi, const double* key,
                           const double* value, double* dk, double* dv);
/// What log_sum_exp is for normal scores of deviation 1 of so many keys: weights of made-up scores add up to about 1.
double usual_lse(double num_keys);

void reference(const autotune::Problem& p, std::span<const int64_t> rows, std::vector<std::vector<double>>& outputs);

}  // namespace seqtile::kernels::attention_backward_op
