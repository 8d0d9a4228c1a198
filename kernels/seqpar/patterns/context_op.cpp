// kernels/seqpar/patterns/context_op.cpp -- see context_op.h.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/seqpar/patterns/context_op.h"

#include <algorithm>

#include "autotune/op_def.h"
#include "jit/base/forever.h"
#include "kernels/seqpar/exchange/transfer.h"
#include "kernels/seqpar/patterns/product_tiles.h"
#include "seqtile/ops/attention.h"

namespace seqtile::kernels::seqpar {

using autotune::Config;

const autotune::OpDef& ContextOp::definition() const {
  static const autotune::OpDef &forward = forever(attention_forward()), &backward = forever(attention_backward());
  return plain.operation == forward.name ? forward : backward;
}

autotune::Workload ContextOp::with_threads(int threads) const {
  autotune::Workload attention = plain;
  attention.threads = threads;
  return attention;
}

std::vector<Config> ContextOp::schedules(const Config& tile, const Setting& s) const {
  return transfer_schedules(tile, {"", "serial"}, push_programs(s), may_pull(s.target, ranks.size()),
                            tile.get_int("block_n"));
}

/// On GPUs the tiles that leave room; where none does the tiles of longer sequences, and all where none of those does.
std::vector<Config> ContextOp::tiles(const Setting& s) const {
  constexpr int64_t kMostRows = 64;
  const autotune::Workload attention = with_threads(s.threads);
  const int64_t own_rows = ranks.rows_of_rank(s.length, layout);
  const auto tiles_of = [&](int64_t rows) {
    return definition().config_space(attention, rows, portable(s.target)).enumerate();
  };
  for (int64_t rows = own_rows; s.target.is_gpu() && rows <= std::max(own_rows, kMostRows); rows *= 2) {
    std::vector<Config> roomy = tiles_of(rows);
    std::erase_if(roomy, [&](const Config& tile) { return !leaves_room(tile, s.target); });
    if (!roomy.empty()) return roomy;
  }
  return tiles_of(own_rows);
}

Config ContextOp::default_tile(const Setting& s) const {
  const Config best =
      definition().default_config(with_threads(s.threads), ranks.rows_of_rank(s.length, layout), portable(s.target));
  const std::vector<Config> all = tiles(s);
  if (std::ranges::find(all, best) != all.end()) return best;
  return std::ranges::min(all, {}, [&](const Config& tile) { return predict_us(tile, s); });
}

std::vector<Config> ContextOp::configs(const Setting& s) const {
  std::vector<Config> configs;
  const Config best = default_tile(s);
  for (const Config& tile : tiles(s)) {
    const std::vector<Config> all = schedules(tile, s);
    configs.insert(configs.end(), all.begin(), tile == best ? all.end() : all.begin() + 1);
  }
  return configs;
}

Config ContextOp::default_config(const Setting& s) const { return schedules(default_tile(s), s).front(); }

double ContextOp::predict_us(const Config& config, const Setting& s) const {
  return autotune::predicted_us(definition(), with_threads(s.threads), config, s.length, portable(s.target)) /
         static_cast<double>(ranks.world_size);
}

autotune::Cost ContextOp::cost(std::span<const int64_t> symbols) const {
  const int64_t length = symbols[0];
  const autotune::Cost cost = definition().cost(plain, std::vector<int64_t>{length, length, length, 1});
  const double share = 1.0 / static_cast<double>(ranks.world_size);
  return {cost.flops * share, cost.bytes_read, cost.bytes_written * share};
}

autotune::OpDef::Tolerance ContextOp::tolerance(int64_t length) const {
  return definition().tolerance(plain, std::vector<int64_t>{length, length, length, 1});
}

RowPieces<Var> RankPositions::in_i32(const RowPieces<Var>& p) const {
  const auto cast = [&](Var value) { return b_.cast(value, DType::i32); };
  Var first = cast(p.first), num_first = cast(p.num_first), second = cast(p.second);
  return {first, num_first, second, cast(p.num_rows)};
}

Var RankPositions::position(const RowPieces<Var>& p, Var row) const {
  if (layout_ == RowLayout::contiguous) return row + p.first;
  return b_.select(row < p.num_first, row + p.first, row + (p.second - p.num_first));
}

Var RankPositions::num_until(const RowPieces<Var>& p, Var position) const {
  const auto within = [&](Var first, Var count) { return b_.max(b_.min(position - (first - 1), count), 0); };
  Var rows = within(p.first, p.num_first);
  return layout_ == RowLayout::contiguous ? rows : rows + within(p.second, p.num_rows - p.num_first);
}

}  // namespace seqtile::kernels::seqpar
