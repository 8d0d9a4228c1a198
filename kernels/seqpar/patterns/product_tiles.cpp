// kernels/seqpar/patterns/product_tiles.cpp -- see product_tiles.h.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/seqpar/patterns/product_tiles.h"

#include <algorithm>

#include <fmt/format.h>

#include "seqtile/error.h"

namespace seqtile::kernels::seqpar {

using autotune::Config;
using linear_op::Tile;

std::vector<Tile> with_room(std::vector<Tile> tiles, const Linear& shape, bool keeps_more) {
  constexpr int64_t kMostValues = 128, kFewValues = 64, kFewestValues = 40;  // of a thread; linear has the most
  const bool is_f32 = shape.dtype == DType::f32;
  const int64_t most = keeps_more && is_f32                  ? kFewestValues
                       : keeps_more || is_f32 || shape.gated ? kFewValues
                                                             : kMostValues;
  std::erase_if(tiles, [&](const Tile& tile) {
    return tile.is_of_gpu() && linear_op::values_of_block(shape, tile) > most * tile.threads();
  });
  return tiles;
}

std::vector<Config> configs_of(const std::string& operation, const Target& target, std::vector<Tile> tiles,
                               const Predict& predict, const Schedules& schedules) {
  if (tiles.empty()) throw Error(ErrorCode::unsupported, fmt::format("{}: no tile fits {}", operation, target.name));
  std::vector<std::pair<double, const Tile*>> ranked;
  for (const Tile& tile : tiles) ranked.emplace_back(predict(tile.config()), &tile);
  std::ranges::stable_sort(ranked, {}, &std::pair<double, const Tile*>::first);
  std::vector<Config> configs = schedules(*ranked[0].second);
  for (size_t i = 1; i < ranked.size(); ++i) configs.push_back(schedules(*ranked[i].second).front());
  return configs;
}

bool fills_registers(const Tile& tile, int num_sums) {
  constexpr int64_t kFewSums = 32;  // of a thread
  return tile.is_of_gpu() && tile.block_m * tile.block_n * num_sums > kFewSums * tile.threads();
}

}  // namespace seqtile::kernels::seqpar
