// kernels/seqpar/operations/context_attention_backward.cpp -- see seqtile/ops/ranks.h.
// SPDX-License-Identifier: Apache-2.0
#include "seqtile/ops/ranks.h"

#include <algorithm>

#include "jit/base/forever.h"
#include "kernels/attention/attention_fields.h"
#include "kernels/seqpar/exchange/rank_op.h"
#include "kernels/seqpar/exchange/row_layout.h"
#include "kernels/seqpar/patterns/context_attention_backward_kernel.h"
#include "kernels/seqpar/patterns/context_op.h"
#include "seqtile/kernel.h"
#include "seqtile/ops/attention.h"

namespace seqtile::kernels::seqpar {

using attention_backward_op::ReferenceQueries;
using autotune::Config;
using autotune::Problem;

namespace {

const autotune::OpDef& plain() {
  static const autotune::OpDef& op = forever(attention_backward());
  return op;
}

ContextBackwardShape shape_of(const ContextAttentionBackward& op, int64_t identity = 0) {
  const AttentionBackward attention{.heads = op.heads,
                                    .kv_heads = op.kv_heads,
                                    .head_dim = op.head_dim,
                                    .causal = op.causal,
                                    .scale = op.scale,
                                    .dtype = op.dtype};
  return {attention, op.dtype, op.layout, op.ranks.size(), identity};
}

ContextBackwardSchedule schedule_of(const Config& c) {
  return {c.get_int("block"), c.get_int("block_n"), TransferSchedule::from(c)};
}

/// What is known of the whole sequence of one head, in its order.
struct Whole {
  std::vector<double> k, v;
  ReferenceQueries queries;
};

/// The rows of all ranks: own ones from the tensors, the rows of peers from the staging.
class Rows {
 public:
  Rows(const ContextAttentionBackward& op, const Problem& p, const ContextAttentionBackward::Args& t)
      : op_(op), p_(p), t_(t), s_(shape_of(op)) {}

  Whole of(int64_t head) const {
    const int64_t kv_head = head / s_.attention.group(), dim = s_.attention.head_dim;
    Whole whole;
    for (int64_t position = 0; position < p_.symbols[0]; ++position) {
      const RowPlace place = place_of_row(s_.layout, position, p_.symbols[0], s_.world_size);
      const bool is_own = place.rank == op_.ranks.longest();
      const auto append = [&](std::vector<double>& to, const Tensor& own, int64_t column, int64_t of_head) {
        const std::vector<double> row = read_row(is_own ? own : staged(place), place.row);
        const auto first = row.begin() + (is_own ? 0 : column) + of_head * dim;
        to.insert(to.end(), first, first + dim);
      };
      append(whole.k, t_.k, 0, kv_head);
      append(whole.v, t_.v, s_.v_column(), kv_head);
      append(whole.queries.q, t_.q, s_.q_column(), head);
      append(whole.queries.dout, t_.dout, s_.dout_column(), head);
      const std::vector<double> numbers = read_row(is_own ? t_.lse : staged(place, DType::f32), place.row);
      whole.queries.lse.push_back(numbers[static_cast<size_t>(head + (is_own ? 0 : s_.lse_column()))]);
      whole.queries.delta.push_back(is_own ? delta(place.row, head)
                                           : numbers[static_cast<size_t>(head + s_.delta_column())]);
    }
    return whole;
  }

 private:
  Tensor staged(const RowPlace& place, std::optional<DType> as = {}) const {
    return staged_rows(p_, exchange_of(op_), 0, place.rank, place.row + 1, 0, as);
  }
  double delta(int64_t row, int64_t head) const {
    const std::vector<double> out = read_row(t_.out, row), dout = read_row(t_.dout, row);
    double sum = 0;
    for (int64_t i = head * s_.attention.head_dim; i < (head + 1) * s_.attention.head_dim; ++i)
      sum += out[static_cast<size_t>(i)] * dout[static_cast<size_t>(i)];
    return sum;
  }

  const ContextAttentionBackward& op_;
  const Problem& p_;
  const ContextAttentionBackward::Args& t_;
  const ContextBackwardShape s_;
};

struct ContextKernel {
  ContextAttentionBackward op;

  std::vector<Config> configs(int threads, int64_t length, const Target& target) const {
    return of_plain().configs(threads, length, target);
  }
  Config default_config(int threads, int64_t length, const Target& target) const {
    return of_plain().default_config(threads, length, target);
  }
  double predict_us(const Config& config, int threads, int64_t length, const Target& target) const {
    return of_plain().predict_us(config, threads, length, target);
  }
  void build(KernelBuilder& b, const Config& c, const Target&, int64_t identity) const {
    build_context_backward(b, shape_of(op, identity), schedule_of(c));
  }
  autotune::SizeExpr programs(const Config& c) const { return context_backward_programs(shape_of(op), schedule_of(c)); }
  autotune::Cost cost(std::span<const int64_t> symbols) const { return of_plain().cost(symbols[0]); }
  autotune::OpDef::Tolerance tolerance(int64_t length) const { return of_plain().tolerance(length); }

  bool fill(const Problem& p, size_t arg, uint64_t seed) const {
    const std::string& name = p.schema->args[arg].name;
    if (name == "lse") return fill_lse(p, p.tensors[arg]), true;
    if (name != "staging") return false;
    fill_channel_arg(p, arg, exchange_of(op), op.ranks.longest(), seed);
    fill_numbers(p);
    return true;
  }

  void reference(const Problem& p, const ContextAttentionBackward::Args& t, std::span<const int64_t> rows,
                 ContextAttentionBackward::Tensors<std::vector<double>>& out) const {
    const ContextBackwardShape shape = shape_of(op);
    const AttentionBackward& s = shape.attention;
    const int64_t length = p.symbols[0], dim = s.head_dim;
    out.dq.resize(rows.size() * static_cast<size_t>(shape.q_columns()));
    for (std::vector<double>* gradient : {&out.dk, &out.dv})
      gradient->resize(rows.size() * static_cast<size_t>(shape.kv_columns()));
    for (int64_t head = 0; head < s.heads; ++head) {
      const Whole whole = Rows(op, p, t).of(head);
      for (size_t r = 0; r < rows.size(); ++r) {
        const int64_t position = position_of_row(shape.layout, op.ranks.longest(), rows[r], length, shape.world_size);
        const size_t query = r * static_cast<size_t>(shape.q_columns()) + static_cast<size_t>(head * dim);
        const size_t key = r * static_cast<size_t>(shape.kv_columns()) + static_cast<size_t>(head / s.group() * dim);
        add_reference_keys(s, whole.queries, position, whole.k, whole.v, 0, s.causal ? position + 1 : length,
                           &out.dq[query]);
        add_reference_queries(s, whole.queries, s.causal ? position : 0, length,
                              &whole.k[static_cast<size_t>(position * dim)],
                              &whole.v[static_cast<size_t>(position * dim)], &out.dk[key], &out.dv[key]);
      }
    }
  }

 private:
  ContextOp of_plain() const {
    autotune::Workload attention = plain().normalize(shape_of(op).attention.workload());
    return {plain(), std::move(attention), op.ranks, op.layout,
            [this](const Config& tile, const Target&) { return leaves_room(tile); }};
  }

  /// Beside what they know of the ranks, threads of a GPU hold the sums of dk and dv, scores and weights, and keys and
  /// values of their warp's rows as operands.
  bool leaves_room(const Config& tile) const {
    const int64_t most_values = op.dtype == DType::f32 ? 96 : 108;  // of a thread
    const int64_t block = tile.get_int("block"), block_n = tile.get_int("block_n");
    const int64_t num_warps = tile.get_int("num_warps"), row_warps = std::min(num_warps, block / 16);
    // Warps that share a tile's rows take eight columns each: without so many, two have the same.
    if (8 * num_warps / row_warps > block_n) return false;
    const int64_t sums = block * (2 * op.head_dim + 3 * block_n) / (32 * num_warps);
    return sums + 2 * (block / row_warps) * op.head_dim / 32 * dtype_bytes(op.dtype) / 4 <= most_values;
  }

  /// lse of queries whose scores are normal, by their place in the sequence.
  double made_up_lse(int64_t position, int64_t length) const {
    return attention_backward_op::usual_lse(static_cast<double>(op.causal ? position + 1 : length));
  }

  void fill_lse(const Problem& p, const Tensor& lse) const {
    for (int64_t row = 0; row < lse.sizes[0]; ++row) {
      const int64_t position = position_of_row(op.layout, op.ranks.longest(), row, p.symbols[0], op.ranks.size());
      for (int64_t head = 0; head < lse.sizes[1]; ++head)
        write_element(lse, row * lse.strides[0] + head * lse.strides[1], made_up_lse(position, p.symbols[0]));
    }
  }

  /// Fills the numbers that peers send beside their rows: lse, and a delta of the usual size.
  void fill_numbers(const Problem& p) const {
    const ContextBackwardShape s = shape_of(op);
    const int64_t length = p.symbols[0];
    for (int source = 0; source < s.world_size; ++source)
      for (int parity = 0; parity < 2; ++parity) {
        const int64_t own_rows = num_rows(s.layout, source, length, s.world_size);
        const Tensor rows = staged_rows(p, exchange_of(op), 0, source, own_rows, parity, DType::f32);
        for (int64_t row = 0; row < rows.sizes[0]; ++row)
          for (int64_t head = 0; head < s.attention.heads; ++head) {
            const int64_t position = position_of_row(s.layout, source, row, length, s.world_size);
            const int64_t at = row * rows.sizes[1] + head;
            write_element(rows, at + s.lse_column(), made_up_lse(position, length));
            write_element(rows, at + s.delta_column(), static_cast<double>((position + head) % 5 - 2));
          }
      }
  }
};

}  // namespace

void ContextAttentionBackward::fields(FieldVisitor& v) {
  ranks.fields(v);
  attention_fields(v, heads, kv_heads, head_dim, causal, scale);
  v.choice("layout", layout, kRowLayoutNames);
}
ExchangeShape ContextAttentionBackward::exchange(int64_t chunk_rows) const {
  return context_backward_exchange(shape_of(*this), chunk_rows);
}
const Protocol& ContextAttentionBackward::protocol(const Config& config) {
  return protocol_of_gather(transfer_of(config));
}

autotune::OpDef context_attention_backward() {
  return rank_op<ContextKernel>(
      "own rows of the gradients of attention over the keys of all ranks, in one launch of each", 5);
}

}  // namespace seqtile::kernels::seqpar
