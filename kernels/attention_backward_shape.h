// kernels/attention_backward_shape.h -- what the parts of attention_backward share: static fields, grid, predictions.
// SPDX-License-Identifier: Apache-2.0
//
// The grid has two kinds of programs, told apart along its second axis. The first kv_heads of them take a block of keys
// and sum dk and dv over all queries that see it, of all query heads of the group. The others take a block of queries
// and sum dq over the keys that it sees. Both have blocks of `block` rows and go over the other side `block_n` rows at
// a time. With s = scale q k^T, p = exp(s - lse) and delta = sum(dout out) of a query:
//
//   dv = p^T dout     ds = p (dout v^T - delta)     dq = scale ds k     dk = scale ds^T q
#pragma once
#include <vector>

#include "autotune/op_def.h"

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

void build(KernelBuilder& b, const autotune::Workload& w, const autotune::Config& config);

autotune::ConfigSpace config_space(const autotune::Workload& w, int64_t length, const Target& target);
autotune::Config default_config(const autotune::Workload& w, int64_t length, const Target& target);
double predict_us(const autotune::Workload& w, const autotune::Config& config, int64_t length, const Target& target);
autotune::GpuWork gpu_work(const autotune::Workload& w, const autotune::Config& config, int64_t length,
                           const Target& target);

void reference(const autotune::Problem& p, std::span<const int64_t> rows, std::vector<std::vector<double>>& outputs);

}  // namespace seqtile::kernels::attention_backward_op
