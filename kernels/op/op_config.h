// kernels/op/op_config.h -- an operation's configuration, its parameters declared once.
// SPDX-License-Identifier: Apache-2.0
//
// An operation has a struct Tile with a member for each parameter, and names them in one place:
//
//   struct Tile { int64_t block_m = 0, block_n = 0; std::optional<int64_t> num_warps = {}; };
//   void parameters(auto& v, auto& tile) const {
//     v("block_m", tile.block_m);
//     v("num_warps", tile.num_warps);  // of GPUs: not in every configuration
//   }
#pragma once
#include <optional>
#include <string>

#include "autotune/fields.h"

namespace seqtile::kernels {

/// Writes the parameters that are there.
class ParameterWriter {
 public:
  void operator()(const char* name, int64_t value) { config.set(name, value); }
  void operator()(const char* name, const std::optional<int64_t>& value) {
    if (value) config.set(name, *value);
  }
  autotune::Config config;
};

/// Errors: invalid_argument where a parameter is missing that every configuration has.
class ParameterReader {
 public:
  explicit ParameterReader(const autotune::Config& config) : config_(config) {}
  void operator()(const char* name, int64_t& value) const { value = config_.get_int(name); }
  void operator()(const char* name, std::optional<int64_t>& value) const {
    if (config_.contains(name)) value = config_.get_int(name);
  }

 private:
  const autotune::Config& config_;
};

template <class Op>
autotune::Config config_of(const Op& op, const typename Op::Tile& tile) {
  ParameterWriter writer;
  op.parameters(writer, tile);
  return writer.config;
}

template <class Op>
typename Op::Tile tile_of(const Op& op, const autotune::Config& config) {
  typename Op::Tile tile;
  const ParameterReader reader(config);
  op.parameters(reader, tile);
  return tile;
}

}  // namespace seqtile::kernels
