// kernels/seqpar/operations/context_attention.cpp -- see context_attention.h.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/seqpar/operations/context_attention.h"

#include "jit/base/forever.h"

#include <algorithm>

#include "kernels/attention/attention_forward.h"
#include "kernels/op/tensor_values.h"
#include "kernels/seqpar/patterns/context_attention_kernel.h"
#include "kernels/seqpar/patterns/context_op.h"
#include "kernels/seqpar/rank_call.h"

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
  static const autotune::OpDef& op = forever(attention_forward());
  return op;
}

/// What every rank computes, as if it had all keys.
AttentionForward attention_of(const Workload& w) { return op_of<AttentionForward>(plain_workload(plain(), w)); }

ContextShape shape_of(const Workload& w, int64_t identity = 0) {
  return {attention_of(w), w.dtype, w.fields.get_int("lse") != 0, layout_of(w), world_size_of(w), identity};
}

ContextSchedule schedule_of(const Config& c) {
  return {c.get_int("block_m"), c.get_int("block_n"), TransferSchedule::from(c)};
}

/// Beside what they know of the ranks, which on Hopper takes fewer registers where it is the same in all threads of a
/// block, threads hold the sums, scores and weights of a tile; of f32 also the halves of keys and values.
bool leaves_room(const Workload& w, const Config& tile, const Target& target) {
  const int64_t most_values = target.has_wgmma ? 112 : 96;  // of a thread
  const int64_t head_dim = w.fields.get_int("head_dim"), block_n = tile.get_int("block_n");
  if (w.dtype == DType::f32 && target.has_wgmma && block_n * head_dim >= 8192) return false;
  return tile.get_int("block_m") * (head_dim + block_n * 3 / 2) <= most_values * 32 * tile.get_int("num_warps");
}

const ContextTiles& tiles() {
  static const ContextTiles& tiles = forever(ContextTiles{plain(), leaves_room});
  return tiles;
}

Schema schema_of(const Workload& w) {
  const AttentionForward s = attention_of(w);
  const int64_t columns = s.heads * s.head_dim, kv_columns = s.kv_heads * s.head_dim;
  Schema schema;
  schema.args.push_back({"q", ArgRole::input, w.dtype, {"own_rows", columns}});
  schema.args.push_back({"k", ArgRole::input, w.dtype, {"own_rows", kv_columns}});
  schema.args.push_back({"v", ArgRole::input, w.dtype, {"own_rows", kv_columns}});
  schema.args.push_back({"out", ArgRole::output, w.dtype, {"own_rows", columns}});
  if (w.fields.get_int("lse")) schema.args.push_back({"lse", ArgRole::output, DType::f32, {"own_rows", s.heads}});
  add_sequence_arg(schema);
  schema.symbols.push_back("own_rows");
  add_channel_args(schema);
  return schema;
}

// --- the call that is measured and verified: that of the longest rank

std::vector<int64_t> symbols(const Workload& w, int64_t length) {
  return symbols_of(w, length, true, context_attention_exchange(w));
}

/// Keys or values of one head in the order of the sequence, [length, head_dim].
std::vector<double> head_rows(const Problem& p, Arg arg, int64_t kv_head) {
  const Workload& w = *p.workload;
  const AttentionForward s = attention_of(w);
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
  const AttentionForward s = attention_of(w);
  const int64_t length = p.symbols[0], heads = s.heads, dim = s.head_dim;
  outputs.assign(w.fields.get_int("lse") ? 2 : 1, {});
  outputs[0].resize(rows.size() * static_cast<size_t>(heads * dim));
  if (outputs.size() > 1) outputs[1].resize(rows.size() * static_cast<size_t>(heads));
  for (int64_t kv_head = 0; kv_head < s.kv_heads; ++kv_head) {
    const std::vector<double> k = head_rows(p, kK, kv_head), v = head_rows(p, kV, kv_head);
    for (size_t r = 0; r < rows.size(); ++r) {
      const std::vector<double> all = read_row(p.tensors[kQ], rows[r]);
      const int64_t position = position_of_row(layout_of(w), longest_rank(w), rows[r], length, world_size_of(w));
      for (int64_t head = kv_head * s.group(); head < (kv_head + 1) * s.group(); ++head) {
        const std::vector<double> q(all.begin() + head * dim, all.begin() + (head + 1) * dim);
        const attention::ReferenceRow row = attention::reference_row(s, q, k, v, 0, s.causal ? position + 1 : length);
        const auto slot = static_cast<int64_t>(r) * heads + head;
        std::ranges::copy(row.out, outputs[0].begin() + slot * dim);
        if (outputs.size() > 1) outputs[1][static_cast<size_t>(slot)] = row.lse;
      }
    }
  }
}

autotune::Cost cost(const Workload& w, std::span<const int64_t> symbols) {
  autotune::Cost cost = plain().cost(plain_workload(plain(), w), plain_symbols(symbols[0]));
  const double share = 1.0 / world_size_of(w);
  return {cost.flops * share, cost.bytes_read, cost.bytes_written * share};
}

}  // namespace

ExchangeShape context_attention_exchange(const Workload& w, int64_t chunk_rows) {
  return context_exchange(shape_of(w), chunk_rows);
}

Workload ContextAttentionForward::workload(const Ranks& ranks) const {
  autotune::Fields fields{{"heads", heads},
                          {"kv_heads", kv_heads},
                          {"head_dim", head_dim},
                          {"causal", int64_t{causal}},
                          {"layout", layout},
                          {"lse", int64_t{lse}},
                          {"world_size", int64_t{ranks.world_size}},
                          {"fabric", ranks.fabric}};
  if (scale != 0) fields.set("scale", scale);
  return {kName, dtype, 1, std::move(fields)};
}

Call ContextAttentionForward::pack(const Args& a, int64_t length) {
  const Tensor sequence = sequence_tensor(length);
  return Call(length, {&a.q, &a.k, &a.v, &a.out, &a.lse, &sequence});
}

autotune::OpDef context_attention_forward() {
  autotune::OpDef op;
  op.version = 5;
  op.name = kName;
  op.summary = "own rows of softmax(q k^T) v over the keys of all ranks, in one launch of each";
  op.normalize = [](const Workload& given) { return normalize_context(given, {"lse"}); };
  op.schema = schema_of;
  op.symbols = symbols;
  add_rank_call(op);
  op.config_space = [](const Workload& w, int64_t length, const Target& target) {
    return context_space(tiles(), w, length, target);
  };
  op.default_config = [](const Workload& w, int64_t length, const Target& target) {
    return context_default(tiles(), w, length, target);
  };
  op.predict_us = [](const Workload& w, const Config& c, int64_t length, const Target& target) {
    return context_predicted_us(plain(), w, c, length, target);
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
  op.fill = [](const Problem& p, size_t arg, uint64_t seed) {
    return fill_context_arg(p, arg, context_attention_exchange(*p.workload), seed);
  };
  op.reference = reference;
  op.cost = cost;
  op.tolerance = [](const Workload& w, std::span<const int64_t> symbols) {
    return plain().tolerance(plain_workload(plain(), w), plain_symbols(symbols[0]));
  };
  return op;
}

}  // namespace seqtile::kernels::seqpar
