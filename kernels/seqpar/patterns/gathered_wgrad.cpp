// kernels/seqpar/patterns/gathered_wgrad.cpp -- see gathered_wgrad.h.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/seqpar/patterns/gathered_wgrad.h"

#include "jit/base/cdiv.h"
#include "seqtile/kernel.h"

namespace seqtile::kernels::seqpar {

namespace {

int64_t tiles_of(const LinearWgrad& g, const linear_op::Tile& tile) {
  return cdiv(g.n, tile.block_m) * cdiv(g.k, tile.block_n);
}

/// Tiles are counted through all gradients: leaves the tensors of the tile's in first place and returns the tile there.
Var choose(const GatheredWgrad& g, WgradOperands& v, Var tile) {
  Var result = tile;
  int64_t before = 0;  // tiles of the gradients 0 .. i - 1
  for (size_t i = 1; i < g.gradients.size(); ++i) {
    before += tiles_of(g.gradients[i - 1], g.t);
    Var is_later = tile >= before;
    result = g.b.select(is_later, tile - before, result);
    for (std::vector<Var>* views : {&v.whole, &v.before, &v.dw})
      if (!views->empty()) views->front() = g.b.select(is_later, (*views)[i], views->front());
  }
  return result;
}

/// The sum of a tile with what the rows of rank + `turn` add.
Var add_rows_of(const GatheredWgrad& g, const WgradOperands& v, Var turn, Var row, Var column, Var tile, Var sum) {
  KernelBuilder& b = g.b;
  Exchange& ex = g.ex;
  Var source = (ex.rank() + turn) % ex.world_size(), rows = ex.num_rows(source);
  Var is_own = b.compare(Compare::eq, turn, 0);
  Var first = b.constant(DType::i64, int64_t{0}), chunks = b.cdiv(rows, g.chunk_rows);
  Var good = ex.await(0, source, first, b.select(is_own, first, chunks), tile);
  Var there = b.select(good, rows, 0);  // of a wait that was given up nothing is read
  Var own = rows_of(b, v.cut, 0, there);
  Var gathered = b.select(is_own, own, ex.source(0, source, there));
  Var whole = rows_of(b, v.whole[0], ex.first_row(source), there);
  return linear_op::add_products_of_rows(b, g.t, g.cuts_dy ? gathered : whole, g.cuts_dy ? whole : gathered, row,
                                         column, sum);
}

}  // namespace

int64_t num_wgrad_tiles(const std::vector<LinearWgrad>& gradients, const linear_op::Tile& tile) {
  int64_t tiles = 0;
  for (const LinearWgrad& g : gradients) tiles += tiles_of(g, tile);
  return tiles;
}

void GatheredWgrad::compute(Var tile) {
  WgradOperands v = operands;
  Var index = choose(*this, v, tile), row_blocks = b.cdiv(b.size(v.dw[0], 0), t.block_m);
  Var row = index % row_blocks * t.block_m, column = index / row_blocks * t.block_n;
  // The sums start from what is there: a GPU's registers do not hold both.
  Var start = v.before.empty() ? b.full({t.block_m, t.block_n}, 0.0)
                               : to_f32(b, b.load(v.before[0], {row, column}, {t.block_m, t.block_n}));
  Var sum = b.for_loop(0, ex.world_size(), 1, {start}, [&](Var turn, std::vector<Var> sums) {
    return std::vector{add_rows_of(*this, v, turn, row, column, tile, sums[0])};
  })[0];
  b.store(v.dw[0], {row, column}, to_storage(b, sum, gradients[0].dw_dtype()));
}

}  // namespace seqtile::kernels::seqpar
