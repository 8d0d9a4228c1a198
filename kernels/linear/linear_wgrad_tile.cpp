// kernels/linear/linear_wgrad_tile.cpp -- see linear_wgrad_tile.h.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/linear/linear_wgrad_tile.h"

namespace seqtile::kernels::linear_wgrad_op {
namespace {

/// A left operand that lies as [k, m], and a k that only the call knows, are not for matrix registers.
Target without_matrix_registers(Target target) {
  target.has_matrix_registers = false;
  return target;
}

}  // namespace

Linear product(const Gradient& g, int64_t length) {
  return {.n = g.k, .k = length, .residual = g.accumulate, .weight_layout = WeightLayout::transposed, .dtype = g.dtype};
}

std::vector<linear_op::Tile> candidates(const Gradient& g, int threads, int64_t length, const Target& target) {
  std::vector<linear_op::Tile> tiles =
      product(g, length).tiles(threads, g.n, without_matrix_registers(target), g.dw_dtype);
  // Sums that start from what is there leave the portable loop no registers to load far ahead, nor for the addresses of
  // wide rows.
  constexpr int64_t kMostSums = 128, kMostStages = 3, kMostColumns = 128;  // sums: of a thread
  std::erase_if(tiles, [&](const linear_op::Tile& tile) {
    return target.is_gpu() && !target.has_wgmma && g.accumulate &&
           tile.block_m * tile.block_n >= kMostSums * tile.threads() &&
           (tile.num_stages > kMostStages || tile.block_n > kMostColumns);
  });
  return tiles;
}

double predict_us(const Gradient& g, const linear_op::Tile& tile, int threads, int64_t length, const Target& target) {
  return product(g, length).predict_us(tile, threads, g.n, target);
}

Var add_products(KernelBuilder& b, const linear_op::Tile& t, Var dy, Var x, Var row, Var column, Var sum) {
  Var length = b.size(dy, 0);
  const auto add = [&](Var token, std::vector<Var> sums) {
    Var left = b.trans(b.load(dy, {token, row}, {t.kc, t.block_m}));
    return std::vector{b.dot(left, b.load(x, {token, column}, {t.kc, t.block_n}), sums[0])};
  };
  return b.for_loop(0, length, t.kc, {sum}, add, {{"form", t.form}, {"mr", t.mr}, {"nr", t.nr}, {"kc", t.kc}})[0];
}

}  // namespace seqtile::kernels::linear_wgrad_op
