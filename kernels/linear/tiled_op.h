// kernels/linear/tiled_op.h -- the OpDef of an operation whose programs are blocks of a product.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <algorithm>
#include <string>
#include <utility>

#include "kernels/linear/linear_config.h"
#include "seqtile/kernel.h"

namespace seqtile::kernels::linear_op {

/// Beside what typed_op() needs Op has tiles(), refuse(), predict_us(), gpu_work(), gpu_samples(), grid() and build()
/// as Linear has them: its configurations are tiles.
template <class Op>
autotune::OpDef tiled_op(std::string summary, int64_t version = 1) {
  using autotune::Config;
  using autotune::Workload;
  autotune::OpDef op = typed_op<Op>(std::move(summary), version);
  op.config_space = [](const Workload& w, int64_t length, const Target& target) {
    autotune::ConfigSpace space;
    for (const Tile& tile : op_of<Op>(w).tiles(w.threads, length, target)) space.add(tile.config());
    return space;
  };
  op.default_config = [](const Workload& w, int64_t length, const Target& target) {
    const Op self = op_of<Op>(w);
    const std::vector<Tile> tiles = self.tiles(w.threads, length, target);
    if (tiles.empty()) self.refuse(target);
    const auto us = [&](const Tile& tile) { return self.predict_us(tile, w.threads, length, target); };
    return std::ranges::min(tiles, {}, us).config();
  };
  op.predict_us = [](const Workload& w, const Config& config, int64_t length, const Target& target) {
    return op_of<Op>(w).predict_us(Tile::from(config), w.threads, length, target);
  };
  op.gpu_work = [](const Workload& w, const Config& config, int64_t length, const Target& target) {
    return op_of<Op>(w).gpu_work(Tile::from(config), length, target);
  };
  op.gpu_samples = [](const Workload& w, const Config& config, int64_t length) {
    std::vector<autotune::GpuSample> samples = op_of<Op>(w).gpu_samples(Tile::from(config), length);
    for (autotune::GpuSample& sample : samples) sample.workload.threads = w.threads;
    return samples;
  };
  op.grid = [](const Workload& w, const Config& config) { return op_of<Op>(w).grid(Tile::from(config)); };
  op.build = [](KernelBuilder& b, const Workload& w, const Config& config, const Target& target) {
    const Op self = op_of<Op>(w);
    const auto views = views_of(self, b);
    self.build(b, views, Tile::from(config), target);
  };
  return op;
}

}  // namespace seqtile::kernels::linear_op
