// kernels/op/tile_kernel.h -- the OpDef of an operation that is one type and whose configurations are tiles.
// SPDX-License-Identifier: Apache-2.0
//
// A row kernel has one parameter and one model of its time (row_kernel.h). An operation whose programs take tiles says
// itself which tiles there are and what they cost; how its members become an OpDef is the same for all.
#pragma once
#include <algorithm>
#include <array>

#include "jit/ir/builder.h"
#include "kernels/op/op_config.h"
#include "kernels/op/typed_op.h"

namespace seqtile::kernels {

/// A setting is what tiles are chosen for: calls of about one length, on a target.
struct Setting {
  int64_t length;
  int threads;  ///< of a CPU
  const Target& target;
};

/// All members of Op's OpDef. Beside what typed_op() needs it has `Tile` and `parameters` (op_config.h), and
///   std::vector<Tile> tiles(const Setting& s) const;                       // worth measuring
///   [[noreturn]] void refuse(const Target& target) const;                  // no tile fits
///   double predict_us(const Tile& tile, const Setting& s) const;           // on a CPU
///   autotune::GpuWork gpu_work(const Tile& tile, const Setting& s) const;
///   std::vector<autotune::GpuSample> gpu_samples(const Tile& tile, int64_t length) const;  // absent: none
///   std::array<autotune::SizeExpr, 3> grid(const Tile& tile) const;
///   std::vector<autotune::Workspace> workspaces(const Tile& tile) const;   // absent: none
///   std::vector<int64_t> symbols(int64_t length) const;                    // of a representative call
///   double flops(std::span<const int64_t> symbols) const;
///   double unread_bytes(std::span<const int64_t> symbols) const;           // absent: all of the inputs is read
///   void build(KernelBuilder& b, const Tensors<Var>& v, const Tile& tile, const Target& target) const;
template <class Op>
autotune::OpDef tile_kernel(std::string summary, int64_t version = 1) {
  using autotune::Config;
  using autotune::Workload;
  using Tile = typename Op::Tile;
  autotune::OpDef op = typed_op<Op>(std::move(summary), version);
  op.config_space = [](const Workload& w, int64_t length, const Target& target) {
    const Op self = op_of<Op>(w);
    autotune::ConfigSpace space;
    for (const Tile& tile : self.tiles({length, w.threads, target})) space.add(config_of(self, tile));
    return space;
  };
  op.default_config = [](const Workload& w, int64_t length, const Target& target) {
    const Op self = op_of<Op>(w);
    const Setting setting{length, w.threads, target};
    const std::vector<Tile> tiles = self.tiles(setting);
    if (tiles.empty()) self.refuse(target);
    const auto us = [&](const Tile& tile) {
      return target.is_gpu() ? autotune::predict_us(self.gpu_work(tile, setting), target.gpu)
                             : self.predict_us(tile, setting);
    };
    return config_of(self, *std::ranges::min_element(tiles, {}, us));
  };
  op.predict_us = [](const Workload& w, const Config& config, int64_t length, const Target& target) {
    const Op self = op_of<Op>(w);
    return self.predict_us(tile_of(self, config), {length, w.threads, target});
  };
  op.gpu_work = [](const Workload& w, const Config& config, int64_t length, const Target& target) {
    const Op self = op_of<Op>(w);
    return self.gpu_work(tile_of(self, config), {length, w.threads, target});
  };
  if constexpr (requires(const Op& self) { self.gpu_samples(Tile(), int64_t{}); })
    op.gpu_samples = [](const Workload& w, const Config& config, int64_t length) {
      const Op self = op_of<Op>(w);
      auto samples = self.gpu_samples(tile_of(self, config), length);
      for (autotune::GpuSample& sample : samples) sample.workload.threads = w.threads;
      return samples;
    };
  op.grid = [](const Workload& w, const Config& config) {
    const Op self = op_of<Op>(w);
    return self.grid(tile_of(self, config));
  };
  if constexpr (requires(const Op& self) { self.workspaces(Tile()); })
    op.workspaces = [](const Workload& w, const Config& config) {
      const Op self = op_of<Op>(w);
      return self.workspaces(tile_of(self, config));
    };
  op.symbols = [](const Workload& w, int64_t length) { return op_of<Op>(w).symbols(length); };
  op.cost = [](const Workload& w, std::span<const int64_t> symbols) {
    const Op self = op_of<Op>(w);
    autotune::Cost cost = traffic_of(schema_of(self).schema, symbols);
    cost.flops = self.flops(symbols);
    if constexpr (requires { self.unread_bytes(symbols); }) cost.bytes_read -= self.unread_bytes(symbols);
    return cost;
  };
  op.build = [](KernelBuilder& b, const Workload& w, const Config& config, const Target& target) {
    const Op self = op_of<Op>(w);
    const auto views = views_of(self, b);
    self.build(b, views, tile_of(self, config), target);
  };
  return op;
}

}  // namespace seqtile::kernels
