// kernels/act/act_and_mul_backward.cpp -- see seqtile/ops/rows.h.
// SPDX-License-Identifier: Apache-2.0
#include "seqtile/ops/rows.h"

#include "jit/base/cdiv.h"
#include "kernels/act/activation.h"
#include "seqtile/kernel.h"

namespace seqtile::kernels {

using autotune::Config;
using autotune::SizeExpr;
using autotune::Workload;

namespace {

int64_t num_blocks(const Workload& w) {
  const auto op = op_of<ActAndMulBackward>(w);
  return cdiv(op.n, op.block_columns());
}

}  // namespace

void ActAndMulBackward::fields(FieldVisitor& v) {
  v.integer("n", n, 1, kMaxFeatures / 2);
  v.choice("activation", activation, kActivationNames);
}

int64_t ActAndMulBackward::block_columns() const {
  constexpr int64_t kMost = 4096, kMostParts = 2, kMostOfUnequal = 1024, kAligned = 8;
  const int64_t fewest = cdiv(n, kMost);
  for (int64_t parts = fewest; parts <= kMostParts * fewest; ++parts)
    if (n % (parts * kAligned) == 0) return n / parts;
  if (n <= kMostOfUnequal) return n;
  return cdiv(cdiv(n, cdiv(n, kMostOfUnequal)), kAligned) * kAligned;
}

void ActAndMulBackward::build(KernelBuilder& b, const Tensors<Var>& v, int64_t rows) const {
  const int64_t columns = block_columns();
  // Views of a half, so that the last part ends where the half does.
  const auto half = [&](Var view, int64_t first) { return b.slice(view, {0, first}, {b.size(view, 0), n}); };
  Var row = b.program_id(0) * rows, column = b.program_id(1) * columns;
  const auto load = [&](Var view) { return to_f32(b, b.load(view, {row, column}, {rows, columns})); };
  Var dy = load(v.dy), gate = load(half(v.x, 0)), up = load(half(v.x, n));
  const auto [value, slope] = slope_of(b, activation, gate);
  b.store(half(v.dx, 0), {row, column}, to_storage(b, dy * up * slope, dtype));
  b.store(half(v.dx, n), {row, column}, to_storage(b, dy * value, dtype));
}

void ActAndMulBackward::reference(const Tensors<Tensor>& t, int64_t row, Tensors<std::vector<double>>& out) const {
  const std::vector<double> dy = read_row(t.dy, row), x = read_row(t.x, row);
  out.dx.resize(out.dx.size() + 2 * n);
  double* const dgate = &out.dx.end()[-2 * n];
  for (int64_t i = 0; i < n; ++i) {
    const auto [value, slope] = slope_of(activation, x[i]);
    dgate[i] = dy[i] * x[n + i] * slope;
    dgate[n + i] = dy[i] * value;
  }
}

autotune::OpDef act_and_mul_backward() {
  autotune::OpDef op = row_kernel<ActAndMulBackward>("gradients of both halves of activation(left half) * right half");
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
