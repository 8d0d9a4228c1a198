// kernels/attention/attention_shape.h -- what the parts of attention_forward share: static fields, operands, one
// softmax step.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <functional>
#include <vector>

#include "autotune/op_def.h"
#include "jit/ir/builder.h"

namespace seqtile::kernels {
class WorkloadReader;
}

namespace seqtile::kernels::attention {

/// The static fields that all operations of attention have: heads, kv_heads, head_dim, causal and scale. Errors: those
/// of the reader, and heads that do not fit.
void read_fields(WorkloadReader& reader);

/// The order of tensors and run-time symbols in the schema.
enum Arg { kQ, kK, kV, kQStart, kKvStart, kKvLen, kOut, kLse };
enum Symbol { kLength, kTokens, kKvTokens, kBatch };

struct Shape {
  explicit Shape(const autotune::Workload& w);
  int64_t heads, kv_heads, head_dim, group;  ///< group: query heads that share a key head
  int64_t window;
  bool causal, decode;
  double soft_cap, scale;
};

/// The kernel's parameters, in schema order.
struct Operands {
  Operands(KernelBuilder& b, const Shape& s, DType dtype);
  Var q, k, v, q_start, kv_start, kv_len, out, lse;
};

/// Keys and values of one head as views [keys, head_dim].
struct Keys {
  Var k, v;
};

/// Where one sequence lies: rows of q and of k. On CPUs the call has checked the numbers (Schema::indices); on GPUs,
/// where it cannot, they are brought into the tensors here, and a sequence whose numbers are wrong has other rows.
struct SequenceRows {
  SequenceRows(KernelBuilder& b, const Target& target, Var q, Var k, Var q_start, Var kv_start, Var kv_len, Var index);
  Var q_first, q_len, kv_len, kv_first;
};

/// Sizes and first rows of one sequence, and its keys.
struct Sequence : SequenceRows {
  Sequence(KernelBuilder& b, const Shape& s, const Operands& operands, Var sequence, Var kv_head, const Target& target);
  Keys keys;
};

/// What a row has seen so far: maximum score (log2 units), sum of exp2(score - maximum), weighted values.
struct Running {
  Running(KernelBuilder& b, int64_t rows, int64_t head_dim);
  explicit Running(const std::vector<Var>& carried) : top(carried[0]), sum(carried[1]), acc(carried[2]) {}
  std::vector<Var> carried() const { return {top, sum, acc}; }
  Var top, sum, acc;
};

/// [rows, columns] of row or column numbers, counted from `first`.
Var row_numbers(KernelBuilder& b, Var first, int64_t rows, int64_t columns);
Var column_numbers(KernelBuilder& b, Var first, int64_t rows, int64_t columns);

/// Takes the keys [first_key, end) into account, block by block. `visible`, from the first key of a block, is an i1
/// tile [rows, block_n].
Running attend(KernelBuilder& b, const Shape& s, const Keys& keys, Var q, Var first_key, Var end, int64_t block_n,
               const std::function<Var(Var first_key)>& visible, const Running& before);
/// The softmax's result [rows, head_dim] and the natural logarithm of its denominator [rows].
Var normalized(KernelBuilder& b, const Running& seen);
Var log_sum_exp(KernelBuilder& b, const Running& seen);

void build_blocks(KernelBuilder& b, const autotune::Workload& w, const autotune::Config& config, const Target& target);
void build_decode(KernelBuilder& b, const autotune::Workload& w, const autotune::Config& config, const Target& target);
std::vector<autotune::Workspace> decode_workspaces(const Shape& s, const autotune::Config& config);

autotune::ConfigSpace config_space(const autotune::Workload& w, int64_t length, const Target& target);
autotune::Config default_config(const autotune::Workload& w, int64_t length, const Target& target);
double predict_us(const autotune::Workload& w, const autotune::Config& config, int64_t length, const Target& target);

/// GPUs: what one program does, and small calls that show it.
autotune::GpuWork gpu_work(const autotune::Workload& w, const autotune::Config& config, int64_t length,
                           const Target& target);
std::vector<autotune::GpuSample> gpu_samples(const autotune::Workload& w, const autotune::Config& config,
                                             int64_t length);

/// One query against the keys [lo, hi) of k and v, [keys, head_dim] each, in plain double loops.
struct ReferenceRow {
  std::vector<double> out;
  double lse;
};
ReferenceRow reference_row(const Shape& s, const std::vector<double>& q, const std::vector<double>& k,
                           const std::vector<double>& v, int64_t lo, int64_t hi);
void reference(const autotune::Problem& p, std::span<const int64_t> rows, std::vector<std::vector<double>>& outputs);

}  // namespace seqtile::kernels::attention
