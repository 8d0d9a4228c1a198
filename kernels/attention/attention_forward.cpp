// kernels/attention/attention_forward.cpp -- see attention_forward.h.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/attention/attention_forward.h"

#include <algorithm>
#include <cmath>

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

namespace attention {

Shape::Shape(const Workload& w)
    : heads(w.fields.get_int("heads")),
      kv_heads(w.fields.get_int("kv_heads")),
      head_dim(w.fields.get_int("head_dim")),
      group(heads / kv_heads),
      window(w.fields.get_int("window")),
      causal(w.fields.get_int("causal") != 0),
      decode(w.fields.get_string("phase") == "decode"),
      soft_cap(w.fields.get_double("soft_cap", 0)),
      scale(w.fields.get_double("scale", 0)) {}

void read_fields(WorkloadReader& reader) {
  const int64_t heads = reader.required("heads", 1, kMaxHeads);
  const int64_t kv_heads = reader.required("kv_heads", 1, kMaxHeads);
  if (heads % kv_heads)
    reader.refuse("kv_heads",
                  "must divide heads (" + std::to_string(heads) + "): equally many query heads share a key head");
  const int64_t head_dim = reader.required("head_dim", 8, 512);
  if (head_dim % 8) reader.refuse("head_dim", "must be a multiple of 8, such as 64, 96, 128 or 256");
  reader.integer("causal", 1, 0, 1);
  reader.number("scale", 1 / std::sqrt(static_cast<double>(head_dim)), 1e-6, 1e3);
}

namespace {

Workload normalize(const Workload& given) {
  WorkloadReader reader(given);
  read_fields(reader);
  reader.choice("phase", {"prefill", "extend", "decode"});
  const bool has_window = reader.integer("window", 0, 0, int64_t{1} << 30) != 0;
  reader.number("soft_cap", 0, 0, 1e6);
  Workload result = reader.finish();
  if (has_window && !result.fields.get_int("causal"))
    reader.refuse("window", "needs causal = 1: the window ends at the query's own position");
  return result;
}

/// A call's length is that of the longest sequence: in decode steps, of one query each, the longest by keys.
std::vector<autotune::IndexRule> index_rules(bool is_decode) {
  using autotune::Dim, autotune::IndexRule;
  IndexRule queries{.kind = IndexRule::Kind::borders, .arg = "q_start", .limit = "tokens", .most = "length"};
  IndexRule keys{.kind = IndexRule::Kind::spans, .arg = "kv_start", .limit = "kv_tokens", .counts = "kv_len"};
  if (is_decode) queries.least = 1, queries.most = Dim(1), keys.most = "length";
  return {queries, keys};
}

Schema schema(const Workload& w) {
  const Shape s(w);
  Schema schema;
  schema.symbols = {"length", "tokens", "kv_tokens", "batch"};
  schema.args.push_back({"q", ArgRole::input, w.dtype, {"tokens", s.heads, s.head_dim}});
  schema.args.push_back({"k", ArgRole::input, w.dtype, {"kv_tokens", s.kv_heads, s.head_dim}});
  schema.args.push_back({"v", ArgRole::input, w.dtype, {"kv_tokens", s.kv_heads, s.head_dim}});
  schema.args.push_back({"q_start", ArgRole::input, DType::i32, {autotune::Dim("batch", 1)}});
  schema.args.push_back({"kv_start", ArgRole::input, DType::i32, {"batch"}});
  schema.args.push_back({"kv_len", ArgRole::input, DType::i32, {"batch"}});
  schema.args.push_back({"out", ArgRole::output, w.dtype, {"tokens", s.heads, s.head_dim}});
  schema.args.push_back({"lse", ArgRole::output, DType::f32, {"tokens", s.heads}});
  schema.indices = index_rules(s.decode);
  return schema;
}

/// A batch of one: chunked prefill is tuned with three times as many cached keys as new ones.
std::vector<int64_t> symbols(const Workload& w, int64_t length) {
  const std::string phase = w.fields.get_string("phase");
  return {length, phase == "decode" ? 1 : length, phase == "extend" ? 4 * length : length, 1};
}

std::array<SizeExpr, 3> grid(const Workload& w, const Config& config) {
  const Shape s(w);
  if (s.decode) return {SizeExpr{config.get_int("splits")}, SizeExpr{s.kv_heads}, SizeExpr{1, {{kBatch}}}};
  return {SizeExpr{1, {{kLength, config.get_int("block_m")}}}, SizeExpr{s.heads}, SizeExpr{1, {{kBatch}}}};
}

autotune::Cost cost(const Workload& w, std::span<const int64_t> symbols) {
  const Shape s(w);
  const double batch = static_cast<double>(symbols[kBatch]);
  const double queries = static_cast<double>(symbols[kTokens]) / batch,
               keys = static_cast<double>(symbols[kKvTokens]) / batch;
  double seen = s.causal ? keys - (queries - 1) / 2 : keys;  // by the average query
  if (s.window) seen = std::min(seen, static_cast<double>(s.window));
  const double dim = static_cast<double>(s.head_dim), bytes = static_cast<double>(dtype_bytes(w.dtype));
  const double heads = static_cast<double>(s.heads), kv_heads = static_cast<double>(s.kv_heads);
  const double kept = s.window ? std::min(keys, static_cast<double>(s.window) + queries) : keys;
  return {4 * dim * heads * queries * seen * batch, (queries * heads + 2 * kept * kv_heads) * dim * bytes * batch,
          queries * heads * (dim * bytes + 4) * batch};
}

/// Sequences of equal length, one after the other.
bool fill(const Problem& p, size_t arg, uint64_t) {
  const int64_t batch = p.symbols[kBatch];
  const auto q_start = [&](int64_t i) { return i * p.symbols[kTokens] / batch; };
  const auto kv_start = [&](int64_t i) { return i * p.symbols[kKvTokens] / batch; };
  if (arg != kQStart && arg != kKvStart && arg != kKvLen) return false;
  for (int64_t i = 0; i < p.tensors[arg].sizes[0]; ++i) {
    const int64_t value = arg == kQStart ? q_start(i) : arg == kKvStart ? kv_start(i) : kv_start(i + 1) - kv_start(i);
    write_element(p.tensors[arg], i * p.tensors[arg].strides[0], static_cast<double>(value));
  }
  return true;
}

/// Weights are rounded to the storage format before they meet the values: its epsilon counts as an absolute error of
/// a weighted mean.
autotune::OpDef::Tolerance attention_tolerance(const Workload& w, std::span<const int64_t> symbols) {
  auto bound = tolerance(w.dtype, symbols[kKvTokens] + w.fields.get_int("head_dim"));
  if (w.dtype != DType::f32) bound.absolute += storage_epsilon(w.dtype) / 2;
  return bound;
}

}  // namespace
}  // namespace attention

Workload AttentionForward::workload() const {
  autotune::Fields fields{{"heads", heads},      {"kv_heads", kv_heads},      {"head_dim", head_dim},
                          {"phase", phase},      {"causal", int64_t{causal}}, {"window", window},
                          {"soft_cap", soft_cap}};
  if (scale != 0) fields.set("scale", scale);
  return {"attention_forward", dtype, threads, std::move(fields)};
}

autotune::OpDef attention_forward() {
  autotune::OpDef op;
  op.name = "attention_forward";
  op.version = 4;
  op.summary = "softmax(q k^T) v over a batch of sequences: prefill, extend, decode";
  op.normalize = attention::normalize;
  op.schema = attention::schema;
  op.config_space = attention::config_space;
  op.default_config = attention::default_config;
  op.build = [](KernelBuilder& b, const Workload& w, const Config& config, const Target& target) {
    attention::Shape(w).decode ? attention::build_decode(b, w, config, target)
                               : attention::build_blocks(b, w, config, target);
  };
  op.grid = attention::grid;
  op.workspaces = [](const Workload& w, const Config& config) -> std::vector<autotune::Workspace> {
    const attention::Shape s(w);
    if (!s.decode) return {};
    return attention::decode_workspaces(s, config);
  };
  op.cost = attention::cost;
  op.predict_us = attention::predict_us;
  op.gpu_work = attention::gpu_work;
  op.gpu_samples = attention::gpu_samples;
  op.symbols = attention::symbols;
  op.fill = attention::fill;
  op.reference = attention::reference;
  op.tolerance = attention::attention_tolerance;
  return op;
}

}  // namespace seqtile::kernels
