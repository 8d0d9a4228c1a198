// kernels/act/act_and_mul.cpp -- see seqtile/ops/rows.h.
// SPDX-License-Identifier: Apache-2.0
#include "seqtile/ops/rows.h"

#include "kernels/act/activation.h"
#include "seqtile/kernel.h"

namespace seqtile::kernels {

void ActAndMul::fields(FieldVisitor& v) {
  v.integer("n", n, 1, kMaxFeatures / 2);
  v.choice("activation", activation, kActivationNames);
}

void ActAndMul::build(KernelBuilder& b, const Tensors<Var>& v, int64_t rows) const {
  Var row = b.program_id(0) * rows;
  Var gate = to_f32(b, b.load(v.x, {row, 0}, {rows, n}));
  Var up = to_f32(b, b.load(v.x, {row, n}, {rows, n}));
  b.store(v.y, {row, 0}, to_storage(b, activate(b, activation, gate) * up, dtype));
}

void ActAndMul::reference(const Tensors<Tensor>& t, int64_t row, Tensors<std::vector<double>>& out) const {
  const std::vector<double> x = read_row(t.x, row);
  for (int64_t i = 0; i < n; ++i) out.y.push_back(activate(activation, x[i]) * x[n + i]);
}

autotune::OpDef act_and_mul() {
  return row_kernel<ActAndMul>("an activation of the left half of each row times its right half");
}

}  // namespace seqtile::kernels
