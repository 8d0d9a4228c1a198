// kernels/seqpar/patterns/context_op.h -- what attention over the ranks' keys and its backward pass have in common.
// SPDX-License-Identifier: Apache-2.0
//
// Both compute with own rows what an operation of one rank, here called plain, computes with all rows. They take its
// tiles, and add how a launch communicates.
#pragma once
#include <functional>

#include "kernels/seqpar/exchange/chunked_tiles.h"
#include "kernels/seqpar/exchange/exchange.h"
#include "kernels/seqpar/exchange/rank_op.h"
#include "kernels/seqpar/exchange/row_layout.h"
#include "seqtile/op.h"

namespace seqtile::kernels::seqpar {

/// The operation of one rank that has all rows.
template <class Plain, class Op>
Plain plain_of(const Op& op) {
  return {.heads = op.heads,
          .kv_heads = op.kv_heads,
          .head_dim = op.head_dim,
          .causal = op.causal,
          .scale = op.scale,
          .dtype = op.dtype};
}

/// Phase 0: a row of all that peers need of one place of the sequence.
template <class Op>
ExchangeShape context_exchange(const Op& op, int64_t columns, int64_t chunk_rows) {
  const PhaseShape rows{PhaseShape::Rows::of_source, op.dtype, columns, chunk_rows};
  return {.world_size = op.ranks.size(), .identity = 0, .phases = {rows}, .layout = op.layout};
}

/// The configurations and costs of attention over ranks, as plans() of its kernels returns them (rank_op.h).
struct ContextOp {
  /// The threads of a GPU hold the values of a tile beside what they know of the ranks.
  using LeavesRoom = std::function<bool(const autotune::Config& tile, const Target& target)>;
  const autotune::Workload plain;  ///< of attention_forward or attention_backward, with all rows
  const Ranks ranks;
  const RowLayout layout;
  const LeavesRoom leaves_room;

  /// Every tile has one schedule, the default tile all of them. Chunks are whole blocks of `block_n` rows.
  std::vector<autotune::Config> configs(const Setting& s) const;
  autotune::Config default_config(const Setting& s) const;
  double predict_us(const autotune::Config& config, const Setting& s) const;
  autotune::Cost cost(std::span<const int64_t> symbols) const;
  autotune::OpDef::Tolerance tolerance(int64_t length) const;

 private:
  std::vector<autotune::Config> schedules(const autotune::Config& tile, const Setting& s) const;
  std::vector<autotune::Config> tiles(const Setting& s) const;
  autotune::Config default_tile(const Setting& s) const;
  const autotune::OpDef& definition() const;
  autotune::Workload with_threads(int threads) const;
};

/// Where a rank's rows stand in the sequence, which masks go by: the functions of RowLayout in Vars. In every layout a
/// rank's rows are in the order of the sequence.
class RankPositions {
 public:
  RankPositions(KernelBuilder& b, RowLayout layout, int world_size, Var length)
      : b_(b), layout_(layout), world_size_(world_size), length_(length) {}

  RowPieces<Var> of(Var rank) const { return pieces_of(layout_, rank, length_, world_size_); }
  /// For tiles of rows.
  RowPieces<Var> in_i32(const RowPieces<Var>& pieces) const;
  /// The position of a row, or the positions of a tile of rows.
  Var position(const RowPieces<Var>& pieces, Var row) const;
  /// The number of the rank's rows, its first ones, that stand at `position` or before.
  Var num_until(const RowPieces<Var>& pieces, Var position) const;

 private:
  KernelBuilder& b_;
  const RowLayout layout_;
  const int world_size_;
  Var length_;
};

/// The common part of the classes that build both kernels. `s`: the operation of one rank, `t`: its tile.
template <class Op, class Plain>
struct ContextBuild : RankBuild<Op> {
  explicit ContextBuild(const RankBuild<Op>& given) : RankBuild<Op>(given) {
    check_chunk(schedule.chunk_rows, t.block_n);
  }
  /// The columns of one head in `rows` rows, of which the first head has those from `column` on.
  Var head_of(Var view, Var rows, Var head, int64_t column = 0) {
    Var first = head * s.head_dim;
    return this->b.slice(view, {0, column ? first + column : first}, {rows, s.head_dim});
  }

  const Plain s = plain_of<Plain>(this->op);
  const typename Plain::Tile t = tile_of(s, this->config);
  const TransferSchedule schedule = TransferSchedule::from(this->config);
  // The members from here on declare the kernel's parameters, in their order.
  const typename Op::template Tensors<Var> views = views_of(this->op, this->b);
  Var sequence = this->b.view("sequence", DType::i8, {kDynamic});
  Exchange ex = this->exchange_over(sequence);
  const RankPositions positions{this->b, this->op.layout, ex.world_size(), ex.length()};
};

}  // namespace seqtile::kernels::seqpar
