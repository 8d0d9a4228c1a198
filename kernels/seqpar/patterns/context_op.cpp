// kernels/seqpar/patterns/context_op.cpp -- see context_op.h.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/seqpar/patterns/context_op.h"

#include <algorithm>

#include "autotune/op_def.h"
#include "kernels/seqpar/exchange/transfer.h"
#include "kernels/seqpar/patterns/product_tiles.h"

namespace seqtile::kernels::seqpar {

using autotune::Config;

ContextOp::ContextOp(const autotune::OpDef& plain, autotune::Workload attention, const Ranks& ranks, RowLayout layout,
                     LeavesRoom leaves_room)
    : plain_(plain),
      attention_(std::move(attention)),
      ranks_(ranks),
      layout_(layout),
      leaves_room_(std::move(leaves_room)) {}

int64_t ContextOp::rows_of_rank(int64_t length) const {
  return std::max<int64_t>(1, most_rows(layout_, length, ranks_.size()));
}

autotune::Workload ContextOp::with_threads(int threads) const {
  autotune::Workload attention = attention_;
  attention.threads = threads;
  return attention;
}

std::vector<Config> ContextOp::schedules(const Config& tile, int threads, const Target& target) const {
  return transfer_schedules(tile, {"", "serial"}, push_programs(target, threads), may_pull(target, ranks_.size()),
                            tile.get_int("block_n"));
}

/// On GPUs the tiles that leave room; where none does the tiles of longer sequences, and all where none of those does.
std::vector<Config> ContextOp::tiles(int threads, int64_t length, const Target& target) const {
  constexpr int64_t kMostRows = 64;
  const autotune::Workload attention = with_threads(threads);
  const int64_t own_rows = rows_of_rank(length);
  const auto tiles_of = [&](int64_t rows) {
    return plain_.config_space(attention, rows, portable(target)).enumerate();
  };
  for (int64_t rows = own_rows; target.is_gpu() && rows <= std::max(own_rows, kMostRows); rows *= 2) {
    std::vector<Config> roomy = tiles_of(rows);
    std::erase_if(roomy, [&](const Config& tile) { return !leaves_room_(tile, target); });
    if (!roomy.empty()) return roomy;
  }
  return tiles_of(own_rows);
}

Config ContextOp::default_tile(int threads, int64_t length, const Target& target) const {
  const Config best = plain_.default_config(with_threads(threads), rows_of_rank(length), portable(target));
  const std::vector<Config> all = tiles(threads, length, target);
  if (std::ranges::find(all, best) != all.end()) return best;
  return std::ranges::min(all, {}, [&](const Config& tile) { return predict_us(tile, threads, length, target); });
}

std::vector<Config> ContextOp::configs(int threads, int64_t length, const Target& target) const {
  std::vector<Config> configs;
  const Config best = default_tile(threads, length, target);
  for (const Config& tile : tiles(threads, length, target)) {
    const std::vector<Config> all = schedules(tile, threads, target);
    configs.insert(configs.end(), all.begin(), tile == best ? all.end() : all.begin() + 1);
  }
  return configs;
}

Config ContextOp::default_config(int threads, int64_t length, const Target& target) const {
  return schedules(default_tile(threads, length, target), threads, target).front();
}

double ContextOp::predict_us(const Config& config, int threads, int64_t length, const Target& target) const {
  return autotune::predicted_us(plain_, with_threads(threads), config, length, portable(target)) /
         static_cast<double>(ranks_.world_size);
}

autotune::Cost ContextOp::cost(int64_t length) const {
  const autotune::Cost cost = plain_.cost(attention_, std::vector<int64_t>{length, length, length, 1});
  const double share = 1.0 / static_cast<double>(ranks_.world_size);
  return {cost.flops * share, cost.bytes_read, cost.bytes_written * share};
}

autotune::OpDef::Tolerance ContextOp::tolerance(int64_t length) const {
  return plain_.tolerance(attention_, std::vector<int64_t>{length, length, length, 1});
}

}  // namespace seqtile::kernels::seqpar
