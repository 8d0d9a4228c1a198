// kernels/norm/rms_norm.cpp -- see seqtile/ops/rows.h.
// SPDX-License-Identifier: Apache-2.0
#include "seqtile/ops/rows.h"

#include <cmath>

#include "seqtile/kernel.h"

namespace seqtile::kernels {

namespace {

constexpr std::array<std::string_view, 3> kNormedNames = {"sum", "x", "both"};

/// The norm of rows of f32.
Var norm_of(KernelBuilder& b, const RmsNorm& op, Var value, Var weight) {
  const int64_t rows = value.type().shape[0], n = op.n;
  Var mean_square = b.sum(value * value, 1) * (1.0 / static_cast<double>(n));
  Var scale = b.unary(ir::OpKind::rsqrt, mean_square + op.eps);
  Var gain = to_f32(b, b.load(weight, {0}, {n}));
  if (op.weight_offset != 0) gain = gain + op.weight_offset;
  return value * across(b, scale, rows, n) * down(b, gain, rows, n);
}

void normalize_row(const RmsNorm& op, const Tensor& weight, std::vector<double>& row) {
  const std::vector<double> gain = read_row(weight, 0);
  double squares = 0;
  for (const double value : row) squares += value * value;
  const double scale = 1 / std::sqrt(squares / static_cast<double>(op.n) + op.eps);
  for (size_t i = 0; i < row.size(); ++i) row[i] *= scale * (op.weight_offset + gain[i]);
}

}  // namespace

void RmsNorm::fields(FieldVisitor& v) {
  v.integer("n", n, 1, kMaxFeatures);
  v.number("eps", eps, 0, 1);
  v.flag("residual", residual);
  v.choice("normed", normed, kNormedNames);
  if (normed != Normed::sum && !residual) v.refuse("normed", "needs residual = 1: without one there is a single norm");
  v.number("weight_offset", weight_offset, -1, 1);
}

void RmsNorm::build(KernelBuilder& b, const Tensors<Var>& v, int64_t rows) const {
  Var row = b.program_id(0) * rows;
  Var value = to_f32(b, b.load(v.x, {row, 0}, {rows, n}));
  if (norms_x()) value = norm_of(b, *this, value, v.x_weight);
  if (residual) {
    value = value + to_f32(b, b.load(v.residual, {row, 0}, {rows, n}));
    b.store(v.sum, {row, 0}, to_storage(b, value, dtype));
  }
  if (has_result()) b.store(v.y, {row, 0}, to_storage(b, norm_of(b, *this, value, v.weight), dtype));
}

void RmsNorm::reference(const Tensors<Tensor>& t, int64_t row, Tensors<std::vector<double>>& out) const {
  std::vector<double> value = read_row(t.x, row);
  if (norms_x()) normalize_row(*this, t.x_weight, value);
  if (residual) {
    const std::vector<double> added = read_row(t.residual, row);
    for (size_t i = 0; i < value.size(); ++i) value[i] += added[i];
    out.sum.insert(out.sum.end(), value.begin(), value.end());
  }
  if (!has_result()) return;
  normalize_row(*this, t.weight, value);
  out.y.insert(out.y.end(), value.begin(), value.end());
}

autotune::OpDef::Tolerance RmsNorm::tolerance() const { return kernels::tolerance(dtype, n); }

autotune::OpDef rms_norm() {
  return row_kernel<RmsNorm>("root-mean-square norm of each row, with residual add before or behind");
}

}  // namespace seqtile::kernels
