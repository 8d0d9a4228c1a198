// kernels/linear/linear_tile.cpp -- see linear_tile.h.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/linear/linear_tile.h"

#include "kernels/act/activation.h"
#include "seqtile/kernel.h"

namespace seqtile::kernels::linear_op {

namespace {

/// A [kc, block_n] tile of a weight's transpose; `first` is its first column, or its first panel where it is packed.
Var load_weight(KernelBuilder& b, const Linear& s, const Tile& t, Var w, Var first, Var kk) {
  if (s.is_transposed()) return b.load(w, {kk, first}, {t.kc, t.block_n});
  if (!s.is_packed()) return b.trans(b.load(w, {first, kk}, {t.block_n, t.kc}));
  Var panels = b.load(w, {first, kk, 0}, {t.block_n / s.panel, t.kc, s.panel});
  return b.reshape(b.trans(panels, {1, 0, 2}), {t.kc, t.block_n});
}

ir::Attributes schedule_of(const Tile& t) { return {{"form", t.form}, {"mr", t.mr}, {"nr", t.nr}, {"kc", t.kc}}; }

}  // namespace

Operands::Operands(const Linear& s, const Linear::Tensors<Var>& views) : x(views.x), residual(views.residual) {
  const auto first = [](const std::array<Var, 3>& of, int count) {
    return std::vector<Var>(of.begin(), of.begin() + count);
  };
  w = first(views.weights(), s.num_weights());
  bias = first(views.biases(), s.bias ? s.num_weights() : 0);
  y = first(views.outputs(), s.num_outputs());
}

Var Operands::choose(KernelBuilder& b, const Linear& s, Var index, int64_t block_n) {
  Var block = index;
  int64_t before = 0;  // blocks of the outputs 0 .. i - 1
  const std::vector<int64_t> columns = s.columns();
  for (size_t i = 1; i < columns.size(); ++i) {
    before += (columns[i - 1] + block_n - 1) / block_n;
    Var is_later = index >= before;
    block = b.select(is_later, index - before, block);
    for (std::vector<Var>* views : {&w, &bias, &y})
      if (!views->empty()) views->front() = b.select(is_later, (*views)[i], views->front());
  }
  return block * block_n;
}

int64_t column_blocks(const Linear& s, int64_t block_n) {
  int64_t blocks = 0;
  for (const int64_t n : s.columns()) blocks += (n + block_n - 1) / block_n;
  return blocks;
}

std::vector<Var> multiply(KernelBuilder& b, const Linear& s, const Tile& t, const Operands& v, Var row, Var column,
                          std::vector<Var> sums) {
  Var first = s.is_packed() ? column / s.panel : column;
  if (sums.empty()) sums.assign(static_cast<size_t>(s.weights_per_loop()), b.full({t.block_m, t.block_n}, 0.0));
  return b.for_loop(
      0, s.k, t.kc, std::move(sums),
      [&](Var kk, std::vector<Var> sums) {
        Var x = b.load(v.x, {row, kk}, {t.block_m, t.kc});
        for (size_t i = 0; i < sums.size(); ++i)
          sums[i] = b.dot(x, load_weight(b, s, t, v.w[i], first, kk), sums[i], s.tf32 ? "tf32" : "native");
        return sums;
      },
      schedule_of(t));
}

Var add_products_of_rows(KernelBuilder& b, const Tile& t, Var dy, Var x, Var row, Var column, Var sum) {
  Var length = b.size(dy, 0);
  const auto add = [&](Var token, std::vector<Var> sums) {
    Var left = b.trans(b.load(dy, {token, row}, {t.kc, t.block_m}));
    return std::vector{b.dot(left, b.load(x, {token, column}, {t.kc, t.block_n}), sums[0])};
  };
  return b.for_loop(0, length, t.kc, {sum}, add, schedule_of(t))[0];
}

Var result_of(KernelBuilder& b, const Linear& s, const Operands& v, Var row, Var column, std::vector<Var> sums) {
  const int64_t rows = sums[0].type().shape[0], columns = sums[0].type().shape[1];
  for (size_t i = 0; s.bias && i < sums.size(); ++i)
    sums[i] = sums[i] + down(b, to_f32(b, b.load(v.bias[i], {column}, {columns})), rows, columns);
  Var result = activate(b, s.activation, sums[0]);
  if (s.gated) result = result * sums[1];
  if (s.scale != 1) result = result * s.scale;
  if (s.soft_cap != 0) result = b.unary(ir::OpKind::tanh, result * (1 / s.soft_cap)) * s.soft_cap;
  if (s.residual) result = result + to_f32(b, b.load(v.residual, {row, column}, {rows, columns}));
  return to_storage(b, result, s.dtype);
}

void store_result(KernelBuilder& b, const Linear& s, const Operands& v, Var row, Var column, std::vector<Var> sums) {
  b.store(v.y[0], {row, column}, result_of(b, s, v, row, column, std::move(sums)));
}

}  // namespace seqtile::kernels::linear_op
