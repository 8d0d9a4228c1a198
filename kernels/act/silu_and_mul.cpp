// kernels/act/silu_and_mul.cpp -- see silu_and_mul.h.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/act/silu_and_mul.h"

#include "kernels/act/activation.h"
#include "kernels/op/row_kernel.h"

namespace seqtile::kernels {

void SiluAndMul::fields(FieldVisitor& v) { v.integer("n", n, 1, kMaxFeatures / 2); }

void SiluAndMul::build(KernelBuilder& b, const Tensors<Var>& v, int64_t rows) const {
  Var row = b.program_id(0) * rows;
  Var gate = to_f32(b, b.load(v.x, {row, 0}, {rows, n}));
  Var up = to_f32(b, b.load(v.x, {row, n}, {rows, n}));
  b.store(v.y, {row, 0}, to_storage(b, b.silu(gate) * up, dtype));
}

void SiluAndMul::reference(const Tensors<Tensor>& t, int64_t row, Tensors<std::vector<double>>& out) const {
  const std::vector<double> x = read_row(t.x, row);
  const size_t half = x.size() / 2;
  for (size_t i = 0; i < half; ++i) out.y.push_back(activate(Activation::silu, x[i]) * x[half + i]);
}

autotune::OpDef silu_and_mul() {
  return row_kernel<SiluAndMul>("silu of the left half of each row times its right half");
}

}  // namespace seqtile::kernels
