// kernels/seqpar/patterns/matmul_backward_config.cpp -- a tile for each of the two products, and how rows are sent.
// SPDX-License-Identifier: Apache-2.0
//
// The products do not depend on each other: tiles of one are measured with the best one of the other alone.
#include <algorithm>
#include <functional>

#include <fmt/format.h>

#include "jit/base/cdiv.h"
#include "kernels/seqpar/exchange/transfer.h"
#include "kernels/seqpar/patterns/matmul_backward_shape.h"
#include "kernels/seqpar/patterns/product_tiles.h"
#include "seqtile/error.h"
#include "seqtile/kernel.h"

namespace seqtile::kernels::seqpar::matmul_backward_op {

using autotune::Config;
using linear_op::Tile;

namespace {

constexpr std::string_view kPrefix = "wgrad_";

double dgrad_us(const Shape& s, const Tile& tile, const Setting& setting) {
  return s.dgrad().predict_us(tile, {setting.length, setting.threads, portable(setting.target)});
}

double wgrad_us(const Shape& s, const Tile& tile, const Setting& setting) {
  return s.wgrad(s.depth()).predict_us(tile, {setting.length, setting.threads, portable(setting.target)});
}

struct Pair {
  Tile dgrad, wgrad;
  double us;
};

/// Tiles with what they are expected to take, the best ones first.
struct Ranked {
  Tile tile;
  double us;
};
std::vector<Ranked> ranked(const std::vector<Tile>& tiles, const std::function<double(const Tile&)>& predict) {
  std::vector<Ranked> result;
  for (const Tile& tile : tiles) result.push_back({tile, predict(tile)});
  std::ranges::stable_sort(result, {}, &Ranked::us);
  return result;
}

/// The widest values that tiles of dx have in shared memory.
DType dgrad_result(const Shape& s) {
  return !s.is_trailing && dtype_bytes(s.transport) > dtype_bytes(s.dtype) ? s.transport : s.dtype;
}

/// `of_rank`: with the rows of one rank.
std::vector<Tile> dgrad_tiles(const Shape& s, const Setting& of_rank) {
  const Linear product = s.dgrad();
  std::vector<Tile> tiles = with_room(product.tiles(of_rank, dgrad_result(s)), product, s.n.size() > 1);
  // Rows of f32 that come in any order are behind more addresses than those of the leading operation; so are gradients
  // of several weights that are added to.
  constexpr int64_t kFewestLeftOut = 48;  // values of a thread
  if (s.dtype == DType::f32 && (s.is_trailing || (s.accumulate && s.n.size() > 1)))
    std::erase_if(tiles, [&](const Tile& tile) {
      return tile.is_of_gpu() && linear_op::values_of_block(product, tile) >= kFewestLeftOut * tile.threads();
    });
  return tiles;
}

std::vector<Tile> wgrad_tiles(const Shape& s, const Setting& of_rank) {
  const LinearWgrad gradient = s.wgrad(s.depth());
  // The sums of one rank's rows are held while those of the next one's are awaited: room as beside several weights.
  std::vector<Tile> tiles = with_room(gradient.tiles(of_rank), gradient.product(of_rank.length), true);
  // Sums that start from what is there, of one of several weights, leave no registers to load far ahead.
  constexpr int64_t kMostStages = 3;
  if (s.accumulate && s.n.size() > 1)
    std::erase_if(tiles, [](const Tile& tile) { return tile.is_of_gpu() && tile.num_stages > kMostStages; });
  return tiles;
}

/// On GPUs both have the same warps and stages, and the same shared memory. The sums of dw change layout as f32, where
/// those of one rank's rows go on with the next one's.
bool fit_together(const Shape& s, const Tile& dgrad, const Tile& wgrad, const Target& target) {
  if (dgrad.num_warps != wgrad.num_warps || dgrad.num_stages != wgrad.num_stages) return false;
  if (!dgrad.is_of_gpu()) return true;
  linear_op::SharedBytes bytes(s.dgrad(), dgrad, dgrad_result(s));
  const linear_op::SharedBytes of_wgrad(s.wgrad(s.depth()).product(1), wgrad, DType::f32);
  bytes.operands = std::max(bytes.operands, of_wgrad.operands);
  bytes.results = std::max(bytes.results, of_wgrad.results);
  return bytes.sum() <= target.shared_bytes;
}

/// Each tile with the best one of the other product, the best pair first.
std::vector<Pair> pairs_of(const Shape& s, const Setting& setting) {
  const Target target = portable(setting.target);
  const Setting of_rank{s.ranks.rows_of_rank(setting.length), setting.threads, target};
  const auto dgrad = ranked(dgrad_tiles(s, of_rank), [&](const Tile& tile) { return dgrad_us(s, tile, setting); });
  const auto wgrad = ranked(wgrad_tiles(s, of_rank), [&](const Tile& tile) { return wgrad_us(s, tile, setting); });
  const auto fit = [&](const Ranked& d, const Ranked& g) { return fit_together(s, d.tile, g.tile, target); };
  std::vector<Pair> pairs;
  for (const Ranked& d : dgrad) {
    const auto g = std::ranges::find_if(wgrad, [&](const Ranked& other) { return fit(d, other); });
    if (g != wgrad.end()) pairs.push_back({d.tile, g->tile, d.us + g->us});
  }
  for (const Ranked& g : wgrad) {
    const auto d = std::ranges::find_if(dgrad, [&](const Ranked& other) { return fit(other, g); });
    if (d != dgrad.end()) pairs.push_back({d->tile, g.tile, d->us + g.us});
  }
  if (pairs.empty()) throw Error(ErrorCode::unsupported, fmt::format("{}: no tiles fit {}", s.operation, target.name));
  std::ranges::stable_sort(pairs, {}, &Pair::us);
  return pairs;
}

Config tiles_config(const Pair& pair) {
  Config config = pair.dgrad.config();
  const Config wgrad = pair.wgrad.config();
  for (const auto& [name, value] : wgrad.values())
    if (name != "num_warps" && name != "num_stages") config.set(std::string(kPrefix) + name, value);
  return config;
}

/// The default first.
std::vector<Config> schedules_of(const Shape& s, const Pair& pair, const Setting& setting) {
  if (s.is_trailing) return gather_schedules(tiles_config(pair), setting, s.ranks.size());
  std::vector<Config> configs;
  const auto add = [&](int64_t chunk_rows, int64_t programs, bool is_interleaved) {
    Config config = tiles_config(pair);
    config.set("chunk_rows", round_up(chunk_rows, pair.dgrad.block_m));  // tiles are sent as a whole
    config.set("push_programs", programs);
    if (is_interleaved) {
      config.set("order", std::string("interleave"));
      config.set("sum_rows", std::min<int64_t>(pair.dgrad.block_m, 8));
    }
    if (std::ranges::find(configs, config) == configs.end()) configs.push_back(std::move(config));
  };
  const std::vector<int64_t> programs = push_programs(setting);
  for (const int64_t count : programs)
    for (const int64_t chunk_rows : {256, 1024, 64}) add(chunk_rows, count, false);
  // With f32 sums of several weights that start from what is there a GPU's registers have no room for sums apart.
  if (!setting.target.is_gpu() || s.dtype != DType::f32 || !s.accumulate || s.n.size() == 1)
    add(256, programs[0], true);
  return configs;
}

}  // namespace

Schedule Schedule::from(const Config& c) {
  Config wgrad;
  for (const auto& [name, value] : c.values()) {
    if (name.starts_with(kPrefix)) wgrad.set(name.substr(kPrefix.size()), value);
    if (name == "num_warps" || name == "num_stages") wgrad.set(name, value);
  }
  return {Tile::from(c), Tile::from(wgrad), GatherSchedule::from(c), ReduceSchedule::from(c)};
}

double Shape::predict_us(const Config& config, const Setting& s) const {
  const Schedule schedule = Schedule::from(config);
  return dgrad_us(*this, schedule.dgrad, s) + wgrad_us(*this, schedule.wgrad, s);
}

std::vector<Config> Shape::configs(const Setting& s) const {
  const std::vector<Pair> pairs = pairs_of(*this, s);
  std::vector<Config> configs = schedules_of(*this, pairs[0], s);
  for (size_t i = 1; i < pairs.size(); ++i) configs.push_back(schedules_of(*this, pairs[i], s).front());
  return configs;
}

}  // namespace seqtile::kernels::seqpar::matmul_backward_op
