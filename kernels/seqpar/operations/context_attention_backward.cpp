// kernels/seqpar/operations/context_attention_backward.cpp -- see context_attention_backward.h.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/seqpar/operations/context_attention_backward.h"

#include "jit/base/forever.h"

#include <algorithm>

#include "kernels/attention/attention_backward.h"
#include "kernels/op/tensor_values.h"
#include "kernels/seqpar/patterns/context_attention_backward_kernel.h"
#include "kernels/seqpar/patterns/context_op.h"
#include "kernels/seqpar/rank_call.h"

namespace seqtile::kernels::seqpar {

using attention_backward_op::ReferenceQueries;
using autotune::ArgRole;
using autotune::Config;
using autotune::Problem;
using autotune::Schema;
using autotune::Workload;

namespace {

constexpr const char* kName = "context_attention_backward";
enum Arg { kQ, kK, kV, kOut, kLse, kDout };

const autotune::OpDef& plain() {
  static const autotune::OpDef& op = forever(attention_backward());
  return op;
}

ContextBackwardShape shape_of(const Workload& w, int64_t identity = 0) {
  return {op_of<AttentionBackward>(plain_workload(plain(), w)), w.dtype, layout_of(w), world_size_of(w), identity};
}

ContextBackwardSchedule schedule_of(const Config& c) {
  return {c.get_int("block"), c.get_int("block_n"), TransferSchedule::from(c)};
}

/// Beside what they know of the ranks, threads of a GPU hold the sums of dk and dv, scores and weights, and keys and
/// values of their warp's rows as operands.
bool leaves_room(const Workload& w, const Config& tile, const Target&) {
  const int64_t most_values = w.dtype == DType::f32 ? 96 : 108;  // of a thread
  const int64_t block = tile.get_int("block"), block_n = tile.get_int("block_n"), num_warps = tile.get_int("num_warps");
  const int64_t head_dim = w.fields.get_int("head_dim"), row_warps = std::min(num_warps, block / 16);
  // Warps that share a tile's rows take eight columns each: without so many, two have the same.
  if (8 * num_warps / row_warps > block_n) return false;
  const int64_t sums = block * (2 * head_dim + 3 * block_n) / (32 * num_warps);
  return sums + 2 * (block / row_warps) * head_dim / 32 * dtype_bytes(w.dtype) / 4 <= most_values;
}

const ContextTiles& tiles() {
  static const ContextTiles& tiles = forever(ContextTiles{plain(), leaves_room});
  return tiles;
}

Schema schema_of(const Workload& w) {
  const ContextBackwardShape s = shape_of(w);
  Schema schema;
  const auto add = [&](const char* name, ArgRole role, int64_t columns, DType dtype) {
    schema.args.push_back({name, role, dtype, {"own_rows", columns}});
  };
  add("q", ArgRole::input, s.q_columns(), w.dtype);
  add("k", ArgRole::input, s.kv_columns(), w.dtype);
  add("v", ArgRole::input, s.kv_columns(), w.dtype);
  add("out", ArgRole::input, s.q_columns(), w.dtype);
  add("lse", ArgRole::input, s.attention.heads, DType::f32);
  add("dout", ArgRole::input, s.q_columns(), w.dtype);
  add("dq", ArgRole::output, s.q_columns(), w.dtype);
  add("dk", ArgRole::output, s.kv_columns(), w.dtype);
  add("dv", ArgRole::output, s.kv_columns(), w.dtype);
  add_sequence_arg(schema);
  schema.symbols.push_back("own_rows");
  add_channel_args(schema);
  return schema;
}

// --- the call that is measured and verified: that of the longest rank

std::vector<int64_t> symbols(const Workload& w, int64_t length) {
  return symbols_of(w, length, true, context_backward_exchange(w));
}

/// lse of queries whose scores are normal, by their place in the sequence.
double made_up_lse(const Workload& w, int64_t position, int64_t length) {
  return attention_backward_op::usual_lse(static_cast<double>(w.fields.get_int("causal") ? position + 1 : length));
}

void fill_lse(const Problem& p) {
  const Workload& w = *p.workload;
  const Tensor& lse = p.tensors[kLse];
  for (int64_t row = 0; row < lse.sizes[0]; ++row) {
    const int64_t position = position_of_row(layout_of(w), longest_rank(w), row, p.symbols[0], world_size_of(w));
    for (int64_t head = 0; head < lse.sizes[1]; ++head)
      write_element(lse, row * lse.strides[0] + head * lse.strides[1], made_up_lse(w, position, p.symbols[0]));
  }
}

/// What peers send beside their rows, which are there: lse, and a delta of the usual size.
void fill_numbers(const Problem& p) {
  const Workload& w = *p.workload;
  const ContextBackwardShape s = shape_of(w);
  const int64_t length = p.symbols[0];
  for (int source = 0; source < s.world_size; ++source)
    for (int parity = 0; parity < 2; ++parity) {
      const Tensor rows =
          staged_rows(p, context_backward_exchange(w), 0, source, own_rows(w, source, length), parity, DType::f32);
      for (int64_t row = 0; row < rows.sizes[0]; ++row)
        for (int64_t head = 0; head < s.attention.heads; ++head) {
          const int64_t position = position_of_row(s.layout, source, row, length, s.world_size);
          const int64_t at = row * rows.sizes[1] + head;
          write_element(rows, at + s.lse_column(), made_up_lse(w, position, length));
          write_element(rows, at + s.delta_column(), static_cast<double>((position + head) % 5 - 2));
        }
    }
}

bool fill(const Problem& p, size_t arg, uint64_t seed) {
  if (arg == kLse) return fill_lse(p), true;
  const bool is_filled = fill_context_arg(p, arg, context_backward_exchange(*p.workload), seed);
  if (p.schema->args[arg].name == "staging") fill_numbers(p);
  return is_filled;
}

/// What is known of the whole sequence of one head, in its order.
struct Whole {
  std::vector<double> k, v;
  ReferenceQueries queries;
};

/// Of the rows of all ranks, own ones from the tensors and those of peers from the staging.
class Rows {
 public:
  explicit Rows(const Problem& p) : p_(p), s_(shape_of(*p.workload)) {}

  Whole of(int64_t head) const {
    const int64_t kv_head = head / s_.attention.group(), dim = s_.attention.head_dim;
    Whole whole;
    for (int64_t position = 0; position < p_.symbols[0]; ++position) {
      const RowPlace place = place_of_row(s_.layout, position, p_.symbols[0], s_.world_size);
      const bool is_own = place.rank == longest_rank(*p_.workload);
      const auto append = [&](std::vector<double>& to, Arg arg, int64_t column, int64_t of_head) {
        const std::vector<double> row = read_row(is_own ? p_.tensors[arg] : staged(place), place.row);
        const auto first = row.begin() + (is_own ? 0 : column) + of_head * dim;
        to.insert(to.end(), first, first + dim);
      };
      append(whole.k, kK, 0, kv_head);
      append(whole.v, kV, s_.v_column(), kv_head);
      append(whole.queries.q, kQ, s_.q_column(), head);
      append(whole.queries.dout, kDout, s_.dout_column(), head);
      const std::vector<double> numbers = read_row(is_own ? p_.tensors[kLse] : staged(place, DType::f32), place.row);
      whole.queries.lse.push_back(numbers[static_cast<size_t>(head + (is_own ? 0 : s_.lse_column()))]);
      whole.queries.delta.push_back(is_own ? delta(place.row, head)
                                           : numbers[static_cast<size_t>(head + s_.delta_column())]);
    }
    return whole;
  }

 private:
  Tensor staged(const RowPlace& place, std::optional<DType> as = {}) const {
    return staged_rows(p_, context_backward_exchange(*p_.workload), 0, place.rank, place.row + 1, 0, as);
  }
  double delta(int64_t row, int64_t head) const {
    const std::vector<double> out = read_row(p_.tensors[kOut], row), dout = read_row(p_.tensors[kDout], row);
    double sum = 0;
    for (int64_t i = head * s_.attention.head_dim; i < (head + 1) * s_.attention.head_dim; ++i)
      sum += out[static_cast<size_t>(i)] * dout[static_cast<size_t>(i)];
    return sum;
  }

  const Problem& p_;
  const ContextBackwardShape s_;
};

void reference(const Problem& p, std::span<const int64_t> rows, std::vector<std::vector<double>>& outputs) {
  const Workload& w = *p.workload;
  const ContextBackwardShape shape = shape_of(w);
  const AttentionBackward& s = shape.attention;
  const int64_t length = p.symbols[0], dim = s.head_dim;
  const auto values = [&](int64_t columns) { return std::vector<double>(rows.size() * static_cast<size_t>(columns)); };
  outputs = {values(shape.q_columns()), values(shape.kv_columns()), values(shape.kv_columns())};
  for (int64_t head = 0; head < s.heads; ++head) {
    const Whole whole = Rows(p).of(head);
    for (size_t r = 0; r < rows.size(); ++r) {
      const int64_t position = position_of_row(shape.layout, longest_rank(w), rows[r], length, shape.world_size);
      const size_t query = r * static_cast<size_t>(shape.q_columns()) + static_cast<size_t>(head * dim);
      const size_t key = r * static_cast<size_t>(shape.kv_columns()) + static_cast<size_t>(head / s.group() * dim);
      add_reference_keys(s, whole.queries, position, whole.k, whole.v, 0, s.causal ? position + 1 : length,
                         &outputs[0][query]);
      add_reference_queries(s, whole.queries, s.causal ? position : 0, length,
                            &whole.k[static_cast<size_t>(position * dim)],
                            &whole.v[static_cast<size_t>(position * dim)], &outputs[1][key], &outputs[2][key]);
    }
  }
}

autotune::Cost cost(const Workload& w, std::span<const int64_t> symbols) {
  const autotune::Cost cost = plain().cost(plain_workload(plain(), w), plain_symbols(symbols[0]));
  const double share = 1.0 / world_size_of(w);
  return {cost.flops * share, cost.bytes_read, cost.bytes_written * share};
}

}  // namespace

ExchangeShape context_backward_exchange(const Workload& w, int64_t chunk_rows) {
  return context_backward_exchange(shape_of(w), chunk_rows);
}

Workload ContextAttentionBackward::workload(const Ranks& ranks) const {
  autotune::Fields fields{{"heads", heads},        {"kv_heads", kv_heads},
                          {"head_dim", head_dim},  {"causal", int64_t{causal}},
                          {"layout", layout},      {"world_size", int64_t{ranks.world_size}},
                          {"fabric", ranks.fabric}};
  if (scale != 0) fields.set("scale", scale);
  return {kName, dtype, 1, std::move(fields)};
}

Call ContextAttentionBackward::pack(const Args& a, int64_t length) {
  const Tensor sequence = sequence_tensor(length);
  return Call(length, {&a.q, &a.k, &a.v, &a.out, &a.lse, &a.dout, &a.dq, &a.dk, &a.dv, &sequence});
}

autotune::OpDef context_attention_backward() {
  autotune::OpDef op;
  op.name = kName;
  op.version = 5;
  op.summary = "own rows of the gradients of attention over the keys of all ranks, in one launch of each";
  op.normalize = [](const Workload& given) { return normalize_context(given, {}); };
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
    build_context_backward(b, shape_of(w, identity_of(w, c)), schedule_of(c));
  };
  op.grid = [](const Workload& w, const Config& c) -> std::array<autotune::SizeExpr, 3> {
    return {context_backward_programs(shape_of(w), schedule_of(c)), {}, {}};
  };
  op.workspaces = [](const Workload&, const Config&) -> std::vector<autotune::Workspace> {
    return {{"counters", DType::i32, {1}}};
  };
  op.fill = fill;
  op.reference = reference;
  op.cost = cost;
  op.tolerance = [](const Workload& w, std::span<const int64_t> symbols) {
    return plain().tolerance(plain_workload(plain(), w), plain_symbols(symbols[0]));
  };
  return op;
}

}  // namespace seqtile::kernels::seqpar
