// kernels/rows/softmax.cpp -- see seqtile/ops/rows.h.
// SPDX-License-Identifier: Apache-2.0
#include "seqtile/ops/rows.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "seqtile/kernel.h"

namespace seqtile::kernels {

void Softmax::fields(FieldVisitor& v) { v.integer("n", n, 1, kMaxFeatures); }

void Softmax::build(KernelBuilder& b, const Tensors<Var>& v, int64_t rows) const {
  Var row = b.program_id(0) * rows;
  Var value = to_f32(b, b.load(v.x, {row, 0}, {rows, n}));
  value = (value - across(b, b.reduce_max(value, 1), rows, n)) * std::numbers::log2e;
  Var power = b.unary(ir::OpKind::exp2, value);
  power = power * across(b, 1.0 / b.sum(power, 1), rows, n);
  b.store(v.y, {row, 0}, to_storage(b, power, dtype));
}

void Softmax::reference(const Tensors<Tensor>& t, int64_t row, Tensors<std::vector<double>>& out) const {
  std::vector<double> x = read_row(t.x, row);
  const double top = std::ranges::max(x);
  double sum = 0;
  for (double& v : x) sum += v = std::exp(v - top);
  for (const double v : x) out.y.push_back(v / sum);
}

/// Probabilities are of order 1 / n: the absolute part must be small beside them.
autotune::OpDef::Tolerance Softmax::tolerance() const {
  auto bound = kernels::tolerance(dtype, n);
  bound.relative += bound.absolute;
  bound.absolute = dtype == DType::f16 ? 0x1p-24 : 1e-9;
  return bound;
}

autotune::OpDef softmax() { return row_kernel<Softmax>("softmax of each row"); }

}  // namespace seqtile::kernels
