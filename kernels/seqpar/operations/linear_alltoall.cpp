// kernels/seqpar/operations/linear_alltoall.cpp -- see seqtile/ops/ranks.h.
// SPDX-License-Identifier: Apache-2.0
//
// Programs, in order: the tiles of what rank + 1 gets, of what rank + 2 gets, ..., whose last one of a chunk publishes
// it; the own tiles, while those are under way; those that take over what has come; one that awaits the rest. In the
// staging a row of a source has the receiver's columns of queries, keys and values side by side.
#include "seqtile/ops/ranks.h"

#include <algorithm>
#include <array>

#include "jit/base/cdiv.h"
#include "kernels/attention/attention_parts.h"
#include "kernels/linear/linear_reference.h"
#include "kernels/linear/linear_tile.h"
#include "kernels/seqpar/exchange/chunked_tiles.h"
#include "kernels/seqpar/exchange/rank_op.h"
#include "kernels/seqpar/exchange/row_layout.h"
#include "kernels/seqpar/exchange/transfer.h"
#include "kernels/seqpar/patterns/product_tiles.h"
#include "seqtile/kernel.h"

namespace seqtile::kernels::seqpar {

using autotune::Config;
using autotune::Problem;
using linear_op::Tile;

namespace {

constexpr int kNumWeights = 3;  ///< of queries, keys and values
bool of_keys(int weight) { return weight > 0; }

/// The product for one rank, the one with the most heads.
Linear part_of(const FusedLinearAndAlltoall& op) {
  const GroupedHeads heads = op.cut();
  Linear part = op.product();
  part.n = heads.most_columns(false);
  part.n2 = part.n3 = heads.most_columns(true);
  return part;
}

std::vector<Config> schedules_of(const Tile& tile) {
  std::vector<Config> configs;
  for (const int64_t chunk_rows : {256, 64}) {
    Config config = tile.config();
    config.set("chunk_rows", round_up(chunk_rows, tile.block_m));
    configs.push_back(std::move(config));
  }
  return configs;
}

class Builder : RankBuild<FusedLinearAndAlltoall> {
 public:
  explicit Builder(const RankBuild& given) : RankBuild(given) {}

  void build() {
    own_rows_ = ex_.num_rows(ex_.rank());
    v_.x = b.slice(v_.x, {0, 0}, {own_rows_, s_.k});
    Var of_a_rank = tiles_.row_blocks * column_blocks();
    const std::array kinds{
        ProgramKind{"push", of_a_rank * int64_t{world_size_ - 1}, [&](Var i) { produce(i); }},
        ProgramKind{"compute", of_a_rank, [&](Var i) { compute_own(i); }},
        ProgramKind{"use", tiles_.row_blocks * int64_t{world_size_ - 1}, [&](Var i) { receive(i); }},
        ProgramKind{"", 1, [&](Var) { finish(); }},
    };
    run_program(b, ex_, b.program_id(0), kinds);
    ex_.leave(v_.y);
  }

 private:
  int64_t column_blocks() const { return linear_op::column_blocks(s_, t_.block_n); }

  /// Columns of output `i` in a row of the staging, of which a receiver has the first ones.
  Var staged(Var segment, Var rows, int i, Var columns) {
    int64_t before = 0;
    for (int j = 0; j < i; ++j) before += s_.weight_columns(j);
    return b.slice(segment, {0, before}, {rows, columns});
  }

  /// The product for the heads of `owner`, but for where it goes.
  linear_op::Operands operands_for(Var owner) {
    linear_op::Operands v = v_;
    for (int i = 0; i < kNumWeights; ++i) {
      const auto at = static_cast<size_t>(i);
      Var first = heads_.first(owner, of_keys(i)), columns = heads_.columns(b, owner, of_keys(i));
      v.w[at] = b.slice(v.w[at], {first, 0}, {columns, s_.k});
      if (s_.bias) v.bias[at] = b.slice(v.bias[at], {first}, {columns});
    }
    return v;
  }

  void compute(linear_op::Operands v, Var row, Var column_block) {
    Var column = v.choose(b, s_, column_block, t_.block_n);
    linear_op::store_result(b, s_, v, row, column, linear_op::multiply(b, s_, t_, v, row, column));
  }

  void produce(Var id) {
    const auto [turn, row, column_block] = tiles_.place_of(b, id, column_blocks());
    Var owner = ex_.peer(turn);
    b.when(row < own_rows_, [&, row = row, column_block = column_block] {
      linear_op::Operands v = operands_for(owner);
      Var to = ex_.target(0, owner, own_rows_);
      for (int i = 0; i < kNumWeights; ++i)
        v.y[static_cast<size_t>(i)] = staged(to, own_rows_, i, heads_.columns(b, owner, of_keys(i)));
      compute(std::move(v), row, column_block);
    });
    Var chunks = ex_.num_chunks(0, owner, ex_.rank());
    tiles_.count(
        b, ex_, ex_.counters(), world_size_, [&](Var per_owner) { return owner * per_owner; }, chunks, row,
        column_blocks(), [&](Var chunk) { ex_.publish(0, owner, chunk); });
  }

  /// The rows of `source` in output `i`.
  Var rows_of(Var source, Var rows, int i) {
    Var columns = heads_.columns(b, ex_.rank(), of_keys(i));
    return b.slice(v_.y[static_cast<size_t>(i)], {ex_.first_row(source), 0}, {rows, columns});
  }

  void compute_own(Var id) {
    const auto [turn, row, column_block] = tiles_.place_of(b, id, column_blocks());
    b.when(row < own_rows_, [&, row = row, column_block = column_block] {
      linear_op::Operands v = operands_for(ex_.rank());
      for (int i = 0; i < kNumWeights; ++i) v.y[static_cast<size_t>(i)] = rows_of(ex_.rank(), own_rows_, i);
      compute(std::move(v), row, column_block);
    });
  }

  void receive(Var id) {
    Var source = ex_.peer(id / tiles_.row_blocks), first = id % tiles_.row_blocks * t_.block_m;
    Var rows = ex_.num_rows(source), end = b.min(first + t_.block_m, rows);
    b.when(first < rows, [&] {
      Var has_come = ex_.await(0, source, first / tiles_.chunk_rows, b.cdiv(end, tiles_.chunk_rows), id);
      b.when(has_come, [&] {
        Var from = ex_.source(0, source, rows);
        for (int i = 0; i < kNumWeights; ++i) {
          Var columns = heads_.columns(b, ex_.rank(), of_keys(i));
          copy_rows(b, staged(from, rows, i, columns), rows_of(source, rows, i), first, end, columns);
        }
      });
    });
  }

  // A call without rows has no tiles whose chunks could be published.
  void finish() {
    b.when(ex_.length() <= 0, [&] {
      b.when(ex_.is_aborted(), nullptr, [&] {
        b.for_each(0, world_size_ - 1, 1,
                   [&](Var i) { ex_.publish(0, ex_.peer(i), b.constant(DType::i64, int64_t{0})); });
      });
    });
    ex_.last_role();
  }

  const Linear s_ = part_of(op);
  const Tile t_ = Tile::from(config);
  const GroupedHeads heads_ = op.cut();
  const int world_size_ = op.ranks.size();
  // The members from here on declare the kernel's parameters, in their order.
  linear_op::Operands v_{op.product(), views_of(op, b)};
  Exchange ex_ = exchange_over(v_.y[0]);
  const ChunkedTiles tiles_{t_.block_m, config.get_int("chunk_rows"),
                            b.cdiv(ex_.length(), int64_t{world_size_} * t_.block_m)};
  Var own_rows_;
};

struct InputProductKernel {
  FusedLinearAndAlltoall op;

  /// The tiles that linear has for a rank's rows.
  std::vector<Config> configs(const Setting& s) const {
    return configs_of(
        std::string(op.kName), s.target, tiles(s), [&](const Config& config) { return predict_us(config, s); },
        schedules_of);
  }

  double predict_us(const Config& config, const Setting& s) const {
    return part_of(op).predict_us(Tile::from(config), {op.ranks.rows_of_rank(s.length), s.threads, s.target}) *
           op.ranks.size();
  }

  void build(const RankBuild<FusedLinearAndAlltoall>& given) const { Builder(given).build(); }

  autotune::SizeExpr programs(const Config& c) const {
    const Tile t = Tile::from(c);
    const int64_t ranks = op.ranks.world_size;
    const int64_t per_block = ranks * linear_op::column_blocks(part_of(op), t.block_n) + ranks - 1;
    return {per_block, {{0, ranks * t.block_m}}, 1};
  }

  std::vector<autotune::Workspace> workspaces(const Config& c) const {
    const int64_t ranks = op.ranks.world_size;
    return {{"counters", DType::i32, autotune::SizeExpr{ranks, {{0, ranks * c.get_int("chunk_rows")}}, 1}}};
  }

  void reference(const Problem& p, const Linear::Tensors<Tensor>& t, std::span<const int64_t> rows,
                 Linear::Tensors<std::vector<double>>& out) const {
    const Linear whole = op.product();
    const GroupedHeads heads = op.cut();
    const std::vector<int64_t> staged_columns = part_of(op).columns();
    const int64_t self = op.ranks.longest();
    std::vector<double>* const outputs[kNumWeights] = {&out.y, &out.y2, &out.y3};
    for (const int64_t row : rows) {
      const RowPlace place = place_of_row(RowLayout::contiguous, row, p.symbols[0], op.ranks.size());
      const bool is_own = place.rank == self;
      std::array<std::vector<double>, kNumWeights> all;
      if (is_own) {
        const auto products = linear_op::reference_products(whole, t, {read_row(t.x, place.row)});
        all = linear_op::reference_epilogue(whole, t, {&row, 1}, products).outputs();
      } else {
        all.fill(staged_row(p, exchange_of(op), 0, place.rank, place.row));
      }
      int64_t staged = 0;
      for (int i = 0; i < kNumWeights; ++i) {
        const auto begin = all[i].begin() + (is_own ? heads.first(self, of_keys(i)) : staged);
        outputs[i]->insert(outputs[i]->end(), begin, begin + heads.columns(self, of_keys(i)));
        staged += staged_columns[i];
      }
    }
  }

  autotune::Cost cost(std::span<const int64_t> symbols) const {
    return cost_of(op.product(), num_rows(RowLayout::contiguous, op.ranks.longest(), symbols[0], op.ranks.size()));
  }
  autotune::OpDef::Tolerance tolerance(int64_t) const { return kernels::tolerance(op.dtype, op.k); }

 private:
  /// The places of the heads of three outputs take registers as well.
  std::vector<Tile> tiles(const Setting& s) const {
    constexpr int64_t kMostValues = 128, kMostColumns = 128, kMostValuesOfF32 = 48;  // values: of a thread
    const Linear product = part_of(op);
    const bool is_f32 = op.dtype == DType::f32;
    std::vector<Tile> tiles =
        with_room(product.tiles({op.ranks.rows_of_rank(s.length), s.threads, s.target}), product, is_f32);
    std::erase_if(tiles, [&](const Tile& tile) {
      if (!tile.is_of_gpu()) return false;
      const int64_t values = linear_op::values_of_block(product, tile) / tile.threads();
      return is_f32 ? values >= kMostValuesOfF32 : values >= kMostValues && tile.block_n > kMostColumns;
    });
    return tiles;
  }
};

}  // namespace

void FusedLinearAndAlltoall::fields(FieldVisitor& v) {
  ranks.fields(v);
  attention::visit_heads(v, heads, kv_heads);
  v.integer("head_dim", head_dim, 1, kMaxFeatures / kMaxHeads);
  v.integer("k", k, 1, kMaxFeatures);
  v.flag("bias", bias);
}

ExchangeShape FusedLinearAndAlltoall::exchange(int64_t chunk_rows) const {
  const int64_t columns = cut().most_columns(false) + 2 * cut().most_columns(true);
  return {ranks.size(), 0, {{PhaseShape::Rows::of_source, dtype, columns, chunk_rows}}};
}

const Protocol& FusedLinearAndAlltoall::protocol(const Config&) { return gather_protocol(); }

autotune::OpDef fused_linear_and_alltoall() {
  return rank_op<InputProductKernel>("own heads of x w^T for all rows from own rows of x, in one launch of each rank",
                                     4);
}

}  // namespace seqtile::kernels::seqpar
