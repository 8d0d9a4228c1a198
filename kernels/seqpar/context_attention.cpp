// kernels/seqpar/context_attention.cpp -- see context_attention.h.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/seqpar/context_attention.h"

#include <algorithm>
#include <cstring>

#include "kernels/attention_forward.h"
#include "kernels/row_kernel.h"
#include "kernels/seqpar/context_attention_kernel.h"
#include "kernels/seqpar/fused_op.h"
#include "kernels/tensor_values.h"

namespace seqtile::kernels::seqpar {

using autotune::ArgRole;
using autotune::Config;
using autotune::Problem;
using autotune::Schema;
using autotune::Workload;

namespace {

constexpr const char* kName = "context_attention_forward";
enum Arg { kQ, kK, kV };

const autotune::OpDef& plain() {
  static const autotune::OpDef op = attention_forward();
  return op;
}

/// What every rank computes, as if it had all keys.
Workload attention_of(const Workload& w) {
  Workload attention{plain().name, w.dtype, w.threads, {{"phase", std::string("prefill")}}};
  for (const char* name : {"heads", "kv_heads", "head_dim", "causal", "scale"})
    if (const auto found = w.fields.values().find(name); found != w.fields.values().end())
      attention.fields.set(name, found->second);
  return plain().normalize(attention);
}

Workload normalize(const Workload& given) {
  const autotune::Fields attention = attention_of(given).fields;
  WorkloadReader reader(given);
  read_rank_fields(reader);
  reader.choice("layout", {"contiguous", "zigzag"});
  reader.flag("lse");
  for (const char* name : {"heads", "kv_heads", "head_dim"}) reader.required(name, 1, kMaxFeatures);
  reader.flag("causal");
  reader.number("scale", 0, 0, 1e3);
  Workload result = reader.finish();
  for (const char* name : {"heads", "kv_heads", "head_dim", "causal", "scale"})
    result.fields.set(name, attention.values().at(name));
  return result;
}

ContextShape shape_of(const Workload& w, int64_t identity = 0) {
  return {attention::Shape(attention_of(w)),
          w.dtype,
          w.fields.get_int("lse") != 0,
          layout_of(w),
          world_size_of(w),
          identity};
}

ContextSchedule schedule_of(const Config& c) {
  return {c.get_int("block_m"), c.get_int("block_n"), {c.get_int("chunk_rows"), c.get_int("push_programs")}};
}

/// A rank's rows of what is known of the whole sequence.
int64_t rows_of_rank(const Workload& w, int64_t length) {
  return std::max<int64_t>(1, most_rows(layout_of(w), length, world_size_of(w)));
}

Schema schema_of(const Workload& w) {
  const attention::Shape s(attention_of(w));
  const int64_t columns = s.heads * s.head_dim, kv_columns = s.kv_heads * s.head_dim;
  Schema schema;
  schema.args.push_back({"q", ArgRole::input, w.dtype, {"own_rows", columns}});
  schema.args.push_back({"k", ArgRole::input, w.dtype, {"own_rows", kv_columns}});
  schema.args.push_back({"v", ArgRole::input, w.dtype, {"own_rows", kv_columns}});
  schema.args.push_back({"out", ArgRole::output, w.dtype, {"own_rows", columns}});
  if (w.fields.get_int("lse")) schema.args.push_back({"lse", ArgRole::output, DType::f32, {"own_rows", s.heads}});
  // No other tensor has the rows of all ranks. Nothing but its size is read.
  schema.args.push_back({"sequence", ArgRole::input, DType::i8, {"length"}});
  schema.symbols.push_back("own_rows");
  add_channel_args(schema);
  return schema;
}

// --- configurations: the tiles of attention to a rank's rows, and how they communicate

/// Keys come from several ranks' memory, which no tensor map covers: Hopper takes the portable loop's tiles.
Target portable(Target target) {
  target.has_wgmma = false;
  return target;
}

std::vector<Config> schedules_of(const Config& tile, const Target& target, int threads) {
  const std::vector<int64_t> push_programs = target.is_gpu() ? std::vector<int64_t>{8, 1}
                                             : threads > 1   ? std::vector<int64_t>{threads, 1}
                                                             : std::vector<int64_t>{1};
  const int64_t block_n = tile.get_int("block_n");
  std::vector<Config> configs;
  for (const int64_t chunk_rows : {256, 64})
    for (const int64_t programs : push_programs) {
      Config config = tile;
      config.set("chunk_rows", (chunk_rows + block_n - 1) / block_n * block_n);
      config.set("push_programs", programs);
      configs.push_back(std::move(config));
    }
  return configs;
}

Config default_tile(const Workload& w, int64_t length, const Target& target) {
  return plain().default_config(attention_of(w), rows_of_rank(w, length), portable(target));
}

/// Every tile with the first schedule, and the default tile with all of them.
autotune::ConfigSpace space_of(const Workload& w, int64_t length, const Target& target) {
  autotune::ConfigSpace space;
  const Config best = default_tile(w, length, target);
  for (const Config& tile :
       plain().config_space(attention_of(w), rows_of_rank(w, length), portable(target)).enumerate()) {
    std::vector<Config> configs = schedules_of(tile, target, w.threads);
    if (tile != best) configs.resize(1);
    for (Config& config : configs) space.add(std::move(config));
  }
  return space;
}

double predict_us(const Workload& w, const Config& config, int64_t length, const Target& target) {
  return autotune::predicted_us(plain(), attention_of(w), config, length, portable(target)) / world_size_of(w);
}

// --- the call that is measured and verified: that of the longest rank

std::vector<int64_t> symbols(const Workload& w, int64_t length) {
  return symbols_of(w, length, true, context_attention_exchange(w));
}

bool fill(const Problem& p, size_t arg, uint64_t seed) {
  const Workload& w = *p.workload;
  if (p.schema->args[arg].name == "sequence") {
    std::memset(p.tensors[arg].data, 0, static_cast<size_t>(p.tensors[arg].sizes[0]));
    return true;
  }
  return fill_channel_arg(p, arg, context_attention_exchange(w), longest_rank(w), seed);
}

/// Keys or values of one head in the order of the sequence, [length, head_dim].
std::vector<double> head_rows(const Problem& p, Arg arg, int64_t kv_head) {
  const Workload& w = *p.workload;
  const attention::Shape s(attention_of(w));
  const int64_t length = p.symbols[0], first = kv_head * s.head_dim;
  std::vector<double> rows;
  for (int64_t position = 0; position < length; ++position) {
    const RowPlace place = place_of_row(layout_of(w), position, length, world_size_of(w));
    const bool is_own = place.rank == longest_rank(w);
    const std::vector<double> row = is_own ? read_row(p.tensors[arg], place.row)
                                           : staged_row(p, context_attention_exchange(w), 0, place.rank, place.row);
    const int64_t at = first + (is_own || arg == kK ? 0 : s.kv_heads * s.head_dim);
    rows.insert(rows.end(), row.begin() + at, row.begin() + at + s.head_dim);
  }
  return rows;
}

void reference(const Problem& p, std::span<const int64_t> rows, std::vector<std::vector<double>>& outputs) {
  const Workload& w = *p.workload;
  const attention::Shape s(attention_of(w));
  const int64_t length = p.symbols[0], heads = s.heads, dim = s.head_dim;
  outputs.assign(w.fields.get_int("lse") ? 2 : 1, {});
  outputs[0].resize(rows.size() * static_cast<size_t>(heads * dim));
  if (outputs.size() > 1) outputs[1].resize(rows.size() * static_cast<size_t>(heads));
  for (int64_t kv_head = 0; kv_head < s.kv_heads; ++kv_head) {
    const std::vector<double> k = head_rows(p, kK, kv_head), v = head_rows(p, kV, kv_head);
    for (size_t r = 0; r < rows.size(); ++r) {
      const std::vector<double> all = read_row(p.tensors[kQ], rows[r]);
      const int64_t position = position_of_row(layout_of(w), longest_rank(w), rows[r], length, world_size_of(w));
      for (int64_t head = kv_head * s.group; head < (kv_head + 1) * s.group; ++head) {
        const std::vector<double> q(all.begin() + head * dim, all.begin() + (head + 1) * dim);
        const attention::ReferenceRow row = attention::reference_row(s, q, k, v, 0, s.causal ? position + 1 : length);
        const auto slot = static_cast<int64_t>(r) * heads + head;
        std::ranges::copy(row.out, outputs[0].begin() + slot * dim);
        if (outputs.size() > 1) outputs[1][static_cast<size_t>(slot)] = row.lse;
      }
    }
  }
}

/// Of attention to as many keys.
std::vector<int64_t> plain_symbols(int64_t length) { return {length, length, length, 1}; }

autotune::Cost cost(const Workload& w, std::span<const int64_t> symbols) {
  autotune::Cost cost = plain().cost(attention_of(w), plain_symbols(symbols[0]));
  const double share = 1.0 / world_size_of(w);
  return {cost.flops * share, cost.bytes_read, cost.bytes_written * share};
}

}  // namespace

ExchangeShape context_attention_exchange(const Workload& w, int64_t chunk_rows) {
  return context_exchange(shape_of(w), chunk_rows);
}

Workload ContextAttentionForward::workload() const {
  autotune::Fields fields{{"heads", heads},
                          {"kv_heads", kv_heads},
                          {"head_dim", head_dim},
                          {"causal", int64_t{causal}},
                          {"layout", layout},
                          {"lse", int64_t{lse}},
                          {"world_size", int64_t{world_size}},
                          {"fabric", fabric}};
  if (scale != 0) fields.set("scale", scale);
  return {kName, dtype, threads, std::move(fields)};
}

Call ContextAttentionForward::pack(const Args& a, int64_t length) {
  static char any;  // nobody reads it
  const Tensor sequence = make_tensor(&any, DType::i8, {length});
  return Call(length, {&a.q, &a.k, &a.v, &a.out, &a.lse, &sequence});
}

autotune::OpDef context_attention_forward() {
  autotune::OpDef op;
  op.name = kName;
  op.summary = "own rows of softmax(q k^T) v over the keys of all ranks, in one launch of each";
  op.normalize = normalize;
  op.schema = schema_of;
  op.symbols = symbols;
  op.config_space = space_of;
  op.default_config = [](const Workload& w, int64_t length, const Target& target) {
    return schedules_of(default_tile(w, length, target), target, w.threads).front();
  };
  op.build = [](KernelBuilder& b, const Workload& w, const Config& c, const Target&) {
    build_context_attention(b, shape_of(w, identity_of(w, c)), schedule_of(c));
  };
  op.grid = [](const Workload& w, const Config& c) -> std::array<autotune::SizeExpr, 3> {
    return {context_programs(shape_of(w), schedule_of(c)), {}, {}};
  };
  op.workspaces = [](const Workload&, const Config&) -> std::vector<autotune::Workspace> {
    return {{"counters", DType::i32, {1}}};
  };
  op.predict_us = predict_us;
  op.fill = fill;
  op.reference = reference;
  op.cost = cost;
  op.tolerance = [](const Workload& w, std::span<const int64_t> symbols) {
    return plain().tolerance(attention_of(w), plain_symbols(symbols[0]));
  };
  return op;
}

}  // namespace seqtile::kernels::seqpar
