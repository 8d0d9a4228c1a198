// kernels/linear/linear_tile.cpp -- see linear_tile.h.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/linear/linear_tile.h"

#include "kernels/op/row_kernel.h"

namespace seqtile::kernels::linear_op {

namespace {

/// A [kc, block_n] tile of a weight's transpose; `first` is its first column, or its first panel where it is packed.
Var load_weight(KernelBuilder& b, const Shape& s, const Tile& t, Var w, Var first, Var kk) {
  if (s.transposed) return b.load(w, {kk, first}, {t.kc, t.block_n});
  if (!s.packed) return b.trans(b.load(w, {first, kk}, {t.block_n, t.kc}));
  Var panels = b.load(w, {first, kk, 0}, {t.block_n / s.panel, t.kc, s.panel});
  return b.reshape(b.trans(panels, {1, 0, 2}), {t.kc, t.block_n});
}

}  // namespace

std::string numbered(const char* name, int i) { return i == 0 ? name : name + std::to_string(i + 1); }

Operands::Operands(KernelBuilder& b, const Shape& s) : Operands(b, s, b.view("x", s.dtype, {kDynamic, s.k})) {}

Operands::Operands(KernelBuilder& b, const Shape& s, Var x) : x(x) {
  for (int i = 0; i < s.num_weights(); ++i) {
    const int64_t n = s.weight_columns(i);
    w.push_back(s.packed       ? b.view(numbered("w", i), s.dtype, {(n + s.panel - 1) / s.panel, s.k, s.panel})
                : s.transposed ? b.view(numbered("w", i), s.dtype, {s.k, n})
                               : b.view(numbered("w", i), s.dtype, {n, s.k}));
  }
  for (int i = 0; s.bias && i < s.num_weights(); ++i)
    bias.push_back(b.view(numbered("bias", i), s.dtype, {s.weight_columns(i)}));
  if (s.residual) residual = b.view("residual", s.dtype, {kDynamic, s.n[0]});
  for (size_t i = 0; i < s.n.size(); ++i)
    y.push_back(b.view(numbered("y", static_cast<int>(i)), s.dtype, {kDynamic, s.n[i]}));
}

Var Operands::choose(KernelBuilder& b, const Shape& s, Var index, int64_t block_n) {
  Var block = index;
  int64_t before = 0;  // blocks of the outputs 0 .. i - 1
  for (size_t i = 1; i < s.n.size(); ++i) {
    before += (s.n[i - 1] + block_n - 1) / block_n;
    Var is_later = index >= before;
    block = b.select(is_later, index - before, block);
    for (std::vector<Var>* views : {&w, &bias, &y})
      if (!views->empty()) views->front() = b.select(is_later, (*views)[i], views->front());
  }
  return block * block_n;
}

int64_t column_blocks(const Shape& s, int64_t block_n) {
  int64_t blocks = 0;
  for (const int64_t n : s.n) blocks += (n + block_n - 1) / block_n;
  return blocks;
}

std::vector<Var> multiply(KernelBuilder& b, const Shape& s, const Tile& t, const Operands& v, Var row, Var column,
                          std::vector<Var> sums) {
  Var first = s.packed ? column / s.panel : column;
  if (sums.empty()) sums.assign(static_cast<size_t>(s.weights_per_loop()), b.full({t.block_m, t.block_n}, 0.0));
  const ir::Attributes schedule = {{"form", t.form}, {"mr", t.mr}, {"nr", t.nr}, {"kc", t.kc}};
  return b.for_loop(
      0, s.k, t.kc, std::move(sums),
      [&](Var kk, std::vector<Var> sums) {
        Var x = b.load(v.x, {row, kk}, {t.block_m, t.kc});
        for (size_t i = 0; i < sums.size(); ++i)
          sums[i] = b.dot(x, load_weight(b, s, t, v.w[i], first, kk), sums[i], s.tf32 ? "tf32" : "native");
        return sums;
      },
      schedule);
}

Var result_of(KernelBuilder& b, const Shape& s, const Operands& v, Var row, Var column, std::vector<Var> sums) {
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

void store_result(KernelBuilder& b, const Shape& s, const Operands& v, Var row, Var column, std::vector<Var> sums) {
  b.store(v.y[0], {row, column}, result_of(b, s, v, row, column, std::move(sums)));
}

}  // namespace seqtile::kernels::linear_op
