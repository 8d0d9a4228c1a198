// kernels/seqpar/operations/context_attention.cpp -- see seqtile/ops/ranks.h.
// SPDX-License-Identifier: Apache-2.0
#include "seqtile/ops/ranks.h"

#include <algorithm>

#include "jit/base/forever.h"
#include "kernels/attention/attention_fields.h"
#include "kernels/seqpar/exchange/rank_op.h"
#include "kernels/seqpar/exchange/row_layout.h"
#include "kernels/seqpar/patterns/context_attention_kernel.h"
#include "kernels/seqpar/patterns/context_op.h"
#include "seqtile/kernel.h"
#include "seqtile/ops/attention.h"

namespace seqtile::kernels::seqpar {

using autotune::Config;
using autotune::Problem;

namespace {

const autotune::OpDef& plain() {
  static const autotune::OpDef& op = forever(attention_forward());
  return op;
}

ContextShape shape_of(const ContextAttentionForward& op, int64_t identity = 0) {
  const AttentionForward attention{.heads = op.heads,
                                   .kv_heads = op.kv_heads,
                                   .head_dim = op.head_dim,
                                   .causal = op.causal,
                                   .scale = op.scale,
                                   .dtype = op.dtype};
  return {attention, op.dtype, op.lse, op.layout, op.ranks.size(), identity};
}

ContextSchedule schedule_of(const Config& c) {
  return {c.get_int("block_m"), c.get_int("block_n"), TransferSchedule::from(c)};
}

struct ContextKernel {
  using Rows = ContextAttentionForward::Tensors<std::vector<double>>;
  ContextAttentionForward op;

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
    build_context_attention(b, shape_of(op, identity), schedule_of(c));
  }
  autotune::SizeExpr programs(const Config& c) const { return context_programs(shape_of(op), schedule_of(c)); }
  autotune::Cost cost(std::span<const int64_t> symbols) const { return of_plain().cost(symbols[0]); }
  autotune::OpDef::Tolerance tolerance(int64_t length) const { return of_plain().tolerance(length); }

  void reference(const Problem& p, const ContextAttentionForward::Args& t, std::span<const int64_t> rows,
                 Rows& out) const {
    const AttentionForward s = shape_of(op).attention;
    const int64_t length = p.symbols[0], dim = s.head_dim;
    out.out.resize(rows.size() * static_cast<size_t>(s.heads * dim));
    out.lse.resize(rows.size() * static_cast<size_t>(s.heads));
    for (int64_t kv_head = 0; kv_head < s.kv_heads; ++kv_head) {
      const int64_t value_column = s.kv_heads * dim;  // of a staged row, behind the keys
      const std::vector<double> k = head_rows(p, t.k, 0, kv_head), v = head_rows(p, t.v, value_column, kv_head);
      for (size_t r = 0; r < rows.size(); ++r) {
        const std::vector<double> all = read_row(t.q, rows[r]);
        const int64_t position = position_of_row(op.layout, op.ranks.longest(), rows[r], length, op.ranks.size());
        for (int64_t head = kv_head * s.group(); head < (kv_head + 1) * s.group(); ++head) {
          const std::vector<double> q(all.begin() + head * dim, all.begin() + (head + 1) * dim);
          const attention::ReferenceRow row = attention::reference_row(s, q, k, v, 0, s.causal ? position + 1 : length);
          const auto slot = static_cast<int64_t>(r) * s.heads + head;
          std::ranges::copy(row.out, out.out.begin() + slot * dim);
          out.lse[static_cast<size_t>(slot)] = row.lse;
        }
      }
    }
  }

 private:
  ContextOp of_plain() const {
    autotune::Workload attention = plain().normalize(shape_of(op).attention.workload());
    return {plain(), std::move(attention), op.ranks, op.layout,
            [this](const Config& tile, const Target& target) { return leaves_room(tile, target); }};
  }

  /// Beside what they know of the ranks, which on Hopper takes fewer registers where it is the same in all threads of a
  /// block, threads hold the sums, scores and weights of a tile; of f32 also the halves of keys and values.
  bool leaves_room(const Config& tile, const Target& target) const {
    const int64_t most_values = target.has_wgmma ? 112 : 96;  // of a thread
    const int64_t block_n = tile.get_int("block_n");
    if (op.dtype == DType::f32 && target.has_wgmma && block_n * op.head_dim >= 8192) return false;
    return tile.get_int("block_m") * (op.head_dim + block_n * 3 / 2) <= most_values * 32 * tile.get_int("num_warps");
  }

  /// Keys or values of one head in the order of the sequence, [length, head_dim]. `column`: their first one in a row
  /// that a peer sends.
  std::vector<double> head_rows(const Problem& p, const Tensor& own, int64_t column, int64_t kv_head) const {
    std::vector<double> rows;
    for (int64_t position = 0; position < p.symbols[0]; ++position) {
      const RowPlace place = place_of_row(op.layout, position, p.symbols[0], op.ranks.size());
      const bool is_own = place.rank == op.ranks.longest();
      const std::vector<double> row =
          is_own ? read_row(own, place.row) : staged_row(p, exchange_of(op), 0, place.rank, place.row);
      const auto first = row.begin() + kv_head * op.head_dim + (is_own ? 0 : column);
      rows.insert(rows.end(), first, first + op.head_dim);
    }
    return rows;
  }
};

}  // namespace

void ContextAttentionForward::fields(FieldVisitor& v) {
  ranks.fields(v);
  attention_fields(v, heads, kv_heads, head_dim, causal, scale);
  v.choice("layout", layout, kRowLayoutNames);
  v.flag("lse", lse);
}
ExchangeShape ContextAttentionForward::exchange(int64_t chunk_rows) const {
  return context_exchange(shape_of(*this), chunk_rows);
}
const Protocol& ContextAttentionForward::protocol(const Config& config) {
  return protocol_of_gather(transfer_of(config));
}

autotune::OpDef context_attention_forward() {
  return rank_op<ContextKernel>("own rows of softmax(q k^T) v over the keys of all ranks, in one launch of each", 5);
}

}  // namespace seqtile::kernels::seqpar
