// kernels/norm/layer_norm.cpp -- see seqtile/ops/rows.h.
// SPDX-License-Identifier: Apache-2.0
#include "seqtile/ops/rows.h"

#include <cmath>

#include "seqtile/kernel.h"

namespace seqtile::kernels {

void LayerNorm::fields(FieldVisitor& v) {
  v.integer("n", n, 1, kMaxFeatures);
  v.number("eps", eps, 0, 1);
  v.flag("bias", bias);
  v.flag("residual", residual);
}

void LayerNorm::build(KernelBuilder& b, const Tensors<Var>& v, int64_t rows) const {
  const double inverse_n = 1.0 / static_cast<double>(n);
  Var row = b.program_id(0) * rows;
  Var value = to_f32(b, b.load(v.x, {row, 0}, {rows, n}));
  if (residual) {
    value = value + to_f32(b, b.load(v.residual, {row, 0}, {rows, n}));
    b.store(v.sum, {row, 0}, to_storage(b, value, dtype));
  }
  value = value - across(b, b.sum(value, 1) * inverse_n, rows, n);
  Var variance = b.sum(value * value, 1) * inverse_n;
  Var scale = b.unary(ir::OpKind::rsqrt, variance + eps);
  value = value * across(b, scale, rows, n) * down(b, to_f32(b, b.load(v.weight, {0}, {n})), rows, n);
  if (bias) value = value + down(b, to_f32(b, b.load(v.bias, {0}, {n})), rows, n);
  b.store(v.y, {row, 0}, to_storage(b, value, dtype));
}

void LayerNorm::reference(const Tensors<Tensor>& t, int64_t row, Tensors<std::vector<double>>& out) const {
  std::vector<double> x = read_row(t.x, row);
  const std::vector<double> weight = read_row(t.weight, 0);
  const std::vector<double> added = residual ? read_row(t.residual, row) : std::vector<double>(x.size());
  const std::vector<double> shift = bias ? read_row(t.bias, 0) : std::vector<double>(x.size());
  double mean = 0, variance = 0;
  for (size_t i = 0; i < x.size(); ++i) mean += (x[i] += added[i]) / static_cast<double>(n);
  for (const double value : x) variance += (value - mean) * (value - mean) / static_cast<double>(n);
  const double scale = 1 / std::sqrt(variance + eps);
  for (size_t i = 0; i < x.size(); ++i) out.y.push_back((x[i] - mean) * scale * weight[i] + shift[i]);
  out.sum.insert(out.sum.end(), x.begin(), x.end());
}

autotune::OpDef::Tolerance LayerNorm::tolerance() const { return kernels::tolerance(dtype, n); }

autotune::OpDef layer_norm() { return row_kernel<LayerNorm>("layer norm of each row, with residual add"); }

}  // namespace seqtile::kernels
