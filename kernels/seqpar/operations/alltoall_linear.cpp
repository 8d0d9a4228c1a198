// kernels/seqpar/operations/alltoall_linear.cpp -- see seqtile/ops/ranks.h.
// SPDX-License-Identifier: Apache-2.0
//
// Programs, in order: those that send each rank its rows, this one's own too, chunk by chunk; the tiles of own rows,
// which await the chunks of all ranks; one that awaits the rest.
#include "seqtile/ops/ranks.h"

#include <algorithm>

#include "kernels/linear/linear_reference.h"
#include "kernels/linear/linear_tile.h"
#include "kernels/seqpar/exchange/rank_op.h"
#include "kernels/seqpar/exchange/transfer.h"
#include "kernels/seqpar/patterns/product_tiles.h"
#include "seqtile/kernel.h"

namespace seqtile::kernels::seqpar {

using autotune::Config;
using autotune::Problem;
using linear_op::Tile;

namespace {

class Builder : RankBuild<FusedAlltoallAndLinear> {
 public:
  explicit Builder(const RankBuild& given) : RankBuild(given) {}

  void build() {
    Var row_blocks = b.cdiv(b.size(v_.x, 0), world_size_ * t_.block_m);
    Var tiles = row_blocks * linear_op::column_blocks(s_, t_.block_n);
    Var id = b.program_id(0), tile = id - schedule_.push_programs;
    run_program(b, ex_, id, {"produce", schedule_.push_programs, [&](Var i) { push(i); }}, tile,
                {"sum", tiles, [&](Var i) { compute(i, row_blocks); }});
    ex_.leave({own_rows_of(v_.y[0])});
  }

 private:
  Var own_rows_of(Var view) { return b.slice(view, {0, 0}, {ex_.num_rows(ex_.rank()), s_.n}); }

  void push(Var program) {
    push_rows(b, ex_, world_size_, program, schedule_, [&](Var peer) {
      Var rows = b.slice(v_.x, {ex_.first_row(peer), 0}, {ex_.num_rows(peer), heads_.columns(b, ex_.rank())});
      return std::vector{Part{rows, heads_.first(ex_.rank())}};
    });
  }

  void compute(Var tile, Var row_blocks) {
    // Tiles of one block of columns follow each other: its weights stay in the cache.
    Var row = tile % row_blocks * t_.block_m, column = tile / row_blocks * t_.block_n;
    Var rows = ex_.num_rows(ex_.rank());
    Var first = schedule_.is_serial ? b.constant(DType::i64, int64_t{0}) : row / schedule_.chunk_rows;
    Var last = b.cdiv(schedule_.is_serial ? rows : b.min(row + t_.block_m, rows), schedule_.chunk_rows);
    Var good =
        in_turn(b, 0, world_size_, row < rows, [&](Var i) { return ex_.await(0, ex_.peer(i), first, last, tile); });
    b.when(good, [&] {
      linear_op::Operands v = v_;
      v.x = ex_.source(0, ex_.rank(), rows);
      const std::vector<Var> sums = linear_op::multiply(b, s_, t_, v, row, column);
      for (Var* view : {&v.y[0], &v.residual})
        if (view->value()) *view = own_rows_of(*view);
      linear_op::store_result(b, s_, v, row, column, sums);
    });
  }

  const Linear s_ = op.product();
  const Tile t_ = Tile::from(config);
  const Heads heads_ = op.cut();
  const int world_size_ = op.ranks.size();
  const TransferSchedule schedule_ = TransferSchedule::from(config);
  // The members from here on declare the kernel's parameters, in their order.
  linear_op::Operands v_{s_, views_of(op, b)};
  Exchange ex_ = exchange_over(v_.x);
};

struct OutputProductKernel {
  FusedAlltoallAndLinear op;

  /// The tiles that linear has for a rank's rows.
  std::vector<Config> configs(const Setting& s) const {
    const Linear product = op.product();
    return configs_of(
        std::string(op.kName), s.target,
        with_room(product.tiles({op.ranks.rows_of_rank(s.length), s.threads, portable(s.target)}), product,
                  op.residual),
        [&](const Config& config) { return predict_us(config, s); },
        [&](const Tile& tile) {
          return transfer_schedules(tile.config(), {"", "serial"}, push_programs(s), false);
        });
  }

  double predict_us(const Config& config, const Setting& s) const {
    return op.product().predict_us(Tile::from(config),
                                   {op.ranks.rows_of_rank(s.length), s.threads, portable(s.target)});
  }

  void build(const RankBuild<FusedAlltoallAndLinear>& given) const { Builder(given).build(); }

  autotune::SizeExpr programs(const Config& c) const {
    const Tile t = Tile::from(c);
    return {linear_op::column_blocks(op.product(), t.block_n),
            {{0, op.ranks.world_size * t.block_m}},
            TransferSchedule::from(c).push_programs + 1};
  }

  void reference(const Problem& p, const Linear::Tensors<Tensor>& t, std::span<const int64_t> rows,
                 Linear::Tensors<std::vector<double>>& out) const {
    const Linear product = op.product();
    std::vector<std::vector<double>> x;
    for (const int64_t row : rows) x.push_back(whole_row(p, t.x, row));
    out = linear_op::reference_epilogue(product, t, rows, linear_op::reference_products(product, t, x));
  }

  autotune::Cost cost(std::span<const int64_t> symbols) const {
    return cost_of(op.product(), num_rows(RowLayout::contiguous, op.ranks.longest(), symbols[0], op.ranks.size()));
  }
  autotune::OpDef::Tolerance tolerance(int64_t) const { return kernels::tolerance(op.dtype, op.cut().all_columns()); }

 private:
  /// All columns of row `row` of the longest rank.
  std::vector<double> whole_row(const Problem& p, const Tensor& x, int64_t row) const {
    const int self = op.ranks.longest();
    std::vector<double> whole = staged_row(p, exchange_of(op), 0, 0, row);
    std::ranges::copy(read_row(x, op.ranks.first_row(self, p.symbols[0]) + row), whole.begin() + op.cut().first(self));
    return whole;
  }
};

}  // namespace

void FusedAlltoallAndLinear::fields(FieldVisitor& v) {
  ranks.fields(v);
  v.integer("heads", heads, 1, kMaxHeads);
  v.integer("head_dim", head_dim, 1, kMaxFeatures / kMaxHeads);
  v.integer("n", n, 1, kMaxFeatures);
  v.choice("activation", activation, kActivationNames);
  v.flag("bias", bias);
  v.flag("residual", residual);
}

ExchangeShape FusedAlltoallAndLinear::exchange(int64_t chunk_rows) const {
  PhaseShape phase{PhaseShape::Rows::shared, dtype, cut().all_columns(), chunk_rows};
  phase.column_group = head_dim;
  return {ranks.size(), 0, {phase}};
}

const Protocol& FusedAlltoallAndLinear::protocol(const Config&) { return reduce_scatter_protocol(); }

autotune::OpDef fused_alltoall_and_linear() {
  return rank_op<OutputProductKernel>("own rows of x w^T from own heads of all rows, in one launch of each rank", 5);
}

}  // namespace seqtile::kernels::seqpar
