// kernels/attention/attention_backward.cpp -- see attention_backward.h.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/attention/attention_backward.h"

#include <algorithm>
#include <cmath>

#include "kernels/attention/attention_backward_shape.h"
#include "kernels/attention/attention_shape.h"
#include "kernels/op/row_kernel.h"
#include "kernels/op/tensor_values.h"
#include "kernels/op/tolerance.h"
#include "kernels/op/workload_reader.h"

namespace seqtile::kernels {

using autotune::ArgRole;
using autotune::Config;
using autotune::Problem;
using autotune::Schema;
using autotune::SizeExpr;
using autotune::Workload;

namespace attention_backward_op {

Shape::Shape(const Workload& w)
    : heads(w.fields.get_int("heads")),
      kv_heads(w.fields.get_int("kv_heads")),
      head_dim(w.fields.get_int("head_dim")),
      group(heads / kv_heads),
      causal(w.fields.get_int("causal") != 0),
      scale(w.fields.get_double("scale", 0)) {}

// Of three more keys, so that among few keys no weight is far above 1.
double usual_lse(double num_keys) { return std::log(num_keys + 3) + 0.5; }

namespace {

Workload normalize(const Workload& given) {
  WorkloadReader reader(given);
  attention::read_fields(reader);
  return reader.finish();
}

Schema schema(const Workload& w) {
  const Shape s(w);
  Schema schema;
  schema.symbols = {"length", "tokens", "kv_tokens", "batch"};
  const auto add = [&](const char* name, ArgRole role, DType dtype, std::vector<autotune::Dim> dims) {
    schema.args.push_back({name, role, dtype, std::move(dims)});
  };
  const std::vector<autotune::Dim> queries = {"tokens", s.heads, s.head_dim},
                                   keys = {"kv_tokens", s.kv_heads, s.head_dim};
  add("q", ArgRole::input, w.dtype, queries);
  add("k", ArgRole::input, w.dtype, keys);
  add("v", ArgRole::input, w.dtype, keys);
  add("out", ArgRole::input, w.dtype, queries);
  add("lse", ArgRole::input, DType::f32, {"tokens", s.heads});
  add("dout", ArgRole::input, w.dtype, queries);
  add("q_start", ArgRole::input, DType::i32, {autotune::Dim("batch", 1)});
  add("kv_start", ArgRole::input, DType::i32, {"batch"});
  add("kv_len", ArgRole::input, DType::i32, {"batch"});
  add("dq", ArgRole::output, w.dtype, queries);
  add("dk", ArgRole::output, w.dtype, keys);
  add("dv", ArgRole::output, w.dtype, keys);
  using autotune::IndexRule;
  schema.indices = {{.kind = IndexRule::Kind::borders, .arg = "q_start", .limit = "tokens", .most = "length"},
                    {.kind = IndexRule::Kind::spans,
                     .arg = "kv_start",
                     .limit = "kv_tokens",
                     .counts = "kv_len",
                     .most = "length",
                     .is_disjoint = true}};
  return schema;
}

/// One sequence, with as many keys as queries.
std::vector<int64_t> symbols(const Workload&, int64_t length) { return {length, length, length, 1}; }

std::array<SizeExpr, 3> grid(const Workload& w, const Config& config) {
  const Shape s(w);
  return {SizeExpr{1, {{kLength, config.get_int("block")}}}, SizeExpr{s.kv_heads + s.heads}, SizeExpr{1, {{kBatch}}}};
}

autotune::Cost cost(const Workload& w, std::span<const int64_t> symbols) {
  constexpr double kProducts = 5;  // at the least: what two programs compute both counts once
  const Shape s(w);
  const double batch = static_cast<double>(symbols[kBatch]);
  const double queries = static_cast<double>(symbols[kTokens]) / batch;
  const double keys = static_cast<double>(symbols[kKvTokens]) / batch;
  const double seen = s.causal ? keys - (queries - 1) / 2 : keys;  // by the average query
  const double dim = static_cast<double>(s.head_dim), bytes = static_cast<double>(dtype_bytes(w.dtype));
  const double heads = static_cast<double>(s.heads), kv_heads = static_cast<double>(s.kv_heads);
  return {kProducts * 2 * dim * heads * queries * seen * batch,
          ((3 * queries * heads + 2 * keys * kv_heads) * dim * bytes + 4 * queries * heads) * batch,
          (queries * heads + 2 * keys * kv_heads) * dim * bytes * batch};
}

void fill_lse(const Problem& p) {
  const Shape s(*p.workload);
  const Tensor& lse = p.tensors[kLse];
  const int64_t batch = p.symbols[kBatch], queries = p.symbols[kTokens] / batch, keys = p.symbols[kKvTokens] / batch;
  for (int64_t token = 0; token < lse.sizes[0]; ++token) {
    const int64_t seen = s.causal ? std::max<int64_t>(1, token % queries + 1 + keys - queries) : keys;
    for (int64_t head = 0; head < s.heads; ++head)
      write_element(lse, token * lse.strides[0] + head * lse.strides[1], usual_lse(static_cast<double>(seen)));
  }
}

/// Sequences of equal length, one after the other.
bool fill(const Problem& p, size_t arg, uint64_t) {
  const int64_t batch = p.symbols[kBatch];
  const auto q_start = [&](int64_t i) { return i * p.symbols[kTokens] / batch; };
  const auto kv_start = [&](int64_t i) { return i * p.symbols[kKvTokens] / batch; };
  if (arg == kLse) {
    fill_lse(p);
    return true;
  }
  if (arg != kQStart && arg != kKvStart && arg != kKvLen) return false;
  for (int64_t i = 0; i < p.tensors[arg].sizes[0]; ++i) {
    const int64_t value = arg == kQStart ? q_start(i) : arg == kKvStart ? kv_start(i) : kv_start(i + 1) - kv_start(i);
    write_element(p.tensors[arg], i * p.tensors[arg].strides[0], static_cast<double>(value));
  }
  return true;
}

/// Weights and their gradients, of the order of 1 and of sqrt(head_dim) in all, are rounded to the storage format
/// before they meet keys, queries and gradients.
autotune::OpDef::Tolerance gradient_tolerance(const Workload& w, std::span<const int64_t> symbols) {
  const Shape s(w);
  auto bound = tolerance(w.dtype, symbols[kKvTokens] + s.head_dim);
  bound.absolute *= 8 * std::sqrt(static_cast<double>(s.group));
  if (w.dtype != DType::f32) bound.absolute += 3 * storage_epsilon(w.dtype) * std::sqrt(static_cast<double>(s.group));
  return bound;
}

}  // namespace
}  // namespace attention_backward_op

Workload AttentionBackward::workload() const {
  autotune::Fields fields{
      {"heads", heads}, {"kv_heads", kv_heads}, {"head_dim", head_dim}, {"causal", int64_t{causal}}};
  if (scale != 0) fields.set("scale", scale);
  return {"attention_backward", dtype, threads, std::move(fields)};
}

autotune::OpDef attention_backward() {
  namespace part = attention_backward_op;
  autotune::OpDef op;
  op.name = "attention_backward";
  op.version = 2;
  op.summary = "gradients of attention's queries, keys and values over a batch of sequences";
  op.normalize = part::normalize;
  op.schema = part::schema;
  op.config_space = part::config_space;
  op.default_config = part::default_config;
  op.build = [](KernelBuilder& b, const Workload& w, const Config& config, const Target& target) {
    part::build(b, w, config, target);
  };
  op.grid = part::grid;
  op.cost = part::cost;
  op.predict_us = part::predict_us;
  op.gpu_work = part::gpu_work;
  op.symbols = part::symbols;
  op.fill = part::fill;
  op.reference = part::reference;
  op.tolerance = part::gradient_tolerance;
  return op;
}

}  // namespace seqtile::kernels
