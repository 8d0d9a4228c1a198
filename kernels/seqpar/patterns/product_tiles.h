// kernels/seqpar/patterns/product_tiles.h -- the tiles that products which communicate are offered.
// SPDX-License-Identifier: Apache-2.0
//
// They are linear's. On a GPU a thread has 255 registers for its sums, for the operands under way, and for what an
// exchange knows of rows, segments and flags: the largest tiles of linear are left out where they would not all fit.
#pragma once
#include <functional>
#include <string>

#include "kernels/linear/linear_config.h"

namespace seqtile::kernels::seqpar {

using linear_op::portable;

/// The members of `tiles`, which are linear's for `shape`, that leave room. `keeps_more`: a thread holds other values
/// beside the sums, as a residual or the sums of another weight.
std::vector<linear_op::Tile> with_room(std::vector<linear_op::Tile> tiles, const Linear& shape,
                                       bool keeps_more = false);

using Predict = std::function<double(const autotune::Config&)>;
using Schedules = std::function<std::vector<autotune::Config>(const linear_op::Tile&)>;

/// Configurations of such a product, the best first: the tile for which `predict` is least with all of `schedules`, and
/// every other one with the first of its own. Errors: unsupported where there is no tile.
std::vector<autotune::Config> configs_of(const std::string& operation, const Target& target,
                                         std::vector<linear_op::Tile> tiles, const Predict& predict,
                                         const Schedules& schedules);

/// GPUs: a thread holds so many sums of such a tile that those of a peer do not fit beside them.
bool fills_registers(const linear_op::Tile& tile, int num_sums);

}  // namespace seqtile::kernels::seqpar
