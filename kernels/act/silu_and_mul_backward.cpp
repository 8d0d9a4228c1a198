// kernels/act/silu_and_mul_backward.cpp -- see silu_and_mul_backward.h.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/act/silu_and_mul_backward.h"

#include <cmath>

#include "jit/base/cdiv.h"
#include "kernels/op/row_kernel.h"

namespace seqtile::kernels {

using autotune::Config;
using autotune::SizeExpr;
using autotune::Workload;

namespace {

int64_t num_blocks(const Workload& w) {
  const auto op = op_of<SiluAndMulBackward>(w);
  return cdiv(op.n, op.block_columns());
}

}  // namespace

void SiluAndMulBackward::fields(FieldVisitor& v) { v.integer("n", n, 1, kMaxFeatures / 2); }

int64_t SiluAndMulBackward::block_columns() const {
  constexpr int64_t kMost = 4096, kMostParts = 2, kMostOfUnequal = 1024, kAligned = 8;
  const int64_t fewest = cdiv(n, kMost);
  for (int64_t parts = fewest; parts <= kMostParts * fewest; ++parts)
    if (n % (parts * kAligned) == 0) return n / parts;
  if (n <= kMostOfUnequal) return n;
  return cdiv(cdiv(n, cdiv(n, kMostOfUnequal)), kAligned) * kAligned;
}

void SiluAndMulBackward::build(KernelBuilder& b, const Tensors<Var>& v, int64_t rows) const {
  const int64_t columns = block_columns();
  // Views of a half, so that the last part ends where the half does.
  const auto half = [&](Var view, int64_t first) { return b.slice(view, {0, first}, {b.size(view, 0), n}); };
  Var row = b.program_id(0) * rows, column = b.program_id(1) * columns;
  const auto load = [&](Var view) { return to_f32(b, b.load(view, {row, column}, {rows, columns})); };
  Var dy = load(v.dy), gate = load(half(v.x, 0)), up = load(half(v.x, n));
  Var s = b.sigmoid(gate), slope = s * (1.0 + gate * (1.0 - s));
  b.store(half(v.dx, 0), {row, column}, to_storage(b, dy * up * slope, dtype));
  b.store(half(v.dx, n), {row, column}, to_storage(b, dy * gate * s, dtype));
}

void SiluAndMulBackward::reference(const Tensors<Tensor>& t, int64_t row, Tensors<std::vector<double>>& out) const {
  const std::vector<double> dy = read_row(t.dy, row), x = read_row(t.x, row);
  std::vector<double> dup;
  for (size_t i = 0; i < dy.size(); ++i) {
    const double gate = x[i], s = 1 / (1 + std::exp(-gate));
    out.dx.push_back(dy[i] * x[dy.size() + i] * s * (1 + gate * (1 - s)));
    dup.push_back(dy[i] * gate * s);
  }
  out.dx.insert(out.dx.end(), dup.begin(), dup.end());
}

autotune::OpDef silu_and_mul_backward() {
  autotune::OpDef op = row_kernel<SiluAndMulBackward>("gradients of both halves of silu(left half) * right half", 2);
  op.grid = [](const Workload& w, const Config& config) {
    return std::array<SizeExpr, 3>{SizeExpr{1, {{0, config.get_int("rows")}}}, SizeExpr{num_blocks(w)}};
  };
  op.gpu_work = [of_rows = op.gpu_work](const Workload& w, const Config& config, int64_t length, const Target& target) {
    autotune::GpuWork work = of_rows(w, config, length, target);
    const double parts = static_cast<double>(num_blocks(w));
    work.programs *= parts, work.l2_bytes /= parts;
    return work;
  };
  return op;
}

}  // namespace seqtile::kernels
