// kernels/norm/rms_norm_backward.cpp -- see seqtile/ops/rows.h.
// SPDX-License-Identifier: Apache-2.0
#include "seqtile/ops/rows.h"

#include <cmath>

#include "kernels/norm/rms_norm_backward_kernel.h"
#include "seqtile/kernel.h"

namespace seqtile::kernels {

namespace rms_norm_backward_op {

using Tile = RmsNormBackward::Tile;

Workspaces::Workspaces(KernelBuilder& b, const Tile& tile) {
  parts = b.view("parts", DType::f32, {kDynamic});
  if (tile.num_groups() > 1) group_sums = b.view("group_sums", DType::f32, {kDynamic});
  arrived = b.view("arrived", DType::i32, {kDynamic});
}

namespace {

/// Rows [row, row + rows) in f32. g: dy times the norm's gain.
struct Rows {
  Rows(KernelBuilder& b, const RmsNormBackward& op, const Operands& v, Var row, int64_t rows);
  /// What they add to dweight, [rows, n].
  Var terms(KernelBuilder& b) const { return dy * x * across(b, scale, x.type().shape[0], x.type().shape[1]); }
  void store_dx(KernelBuilder& b, const Operands& v) const;
  Var row, dy, x, g, scale;
};

Rows::Rows(KernelBuilder& b, const RmsNormBackward& op, const Operands& v, Var row, int64_t rows) : row(row) {
  const int64_t n = op.n;
  dy = to_f32(b, b.load(v.dy, {row, 0}, {rows, n}));
  x = to_f32(b, b.load(v.x, {row, 0}, {rows, n}));
  Var gain = to_f32(b, b.load(v.weight, {0}, {n}));
  if (op.weight_offset != 0) gain = gain + op.weight_offset;
  g = dy * down(b, gain, rows, n);
  Var mean_square = b.sum(x * x, 1) * (1.0 / static_cast<double>(n));
  scale = b.unary(ir::OpKind::rsqrt, mean_square + op.eps);
}

void Rows::store_dx(KernelBuilder& b, const Operands& v) const {
  const int64_t rows = x.type().shape[0], n = x.type().shape[1];
  Var pull = b.sum(g * x, 1) * (1.0 / static_cast<double>(n)) * scale * scale;
  Var dx = (g - x * across(b, pull, rows, n)) * across(b, scale, rows, n);
  if (v.residual.value()) dx = dx + to_f32(b, b.load(v.residual, {row, 0}, {rows, n}));
  b.store(v.dx, {row, 0}, to_storage(b, dx, v.dx.type().dtype));
}

/// The sum of `count` runs of n values that lie one after the other, in their order.
Var sum_of_runs(KernelBuilder& b, Var view, Operand first, int64_t count, int64_t n) {
  return b.for_loop(0, count, 1, {b.full({n}, 0.0)}, [&](Var i, std::vector<Var> sums) {
    return std::vector{sums[0] + b.load(view, {(i + first) * n}, {n})};
  })[0];
}

/// Runs `body` in the program that is the last of `count` to arrive at `counter`, which is 0 again afterwards.
void when_last(KernelBuilder& b, Var arrived, Operand counter, int64_t count, const std::function<void()>& body) {
  Var before_me = b.atomic("add", arrived, {counter}, 1);
  b.when(b.compare(Compare::eq, before_me, count - 1), [&] {
    b.store_scalar(arrived, {counter}, 0);
    body();
  });
}

/// Adds up the parts of dweight, of which this program has written its own.
void merge(KernelBuilder& b, const Workspaces& v, const Tile& tile, int64_t n,
           const std::function<void(Var dweight)>& give) {
  const int64_t groups = tile.num_groups(), members = tile.members();
  Var group = b.program_id(0) / members;
  when_last(b, v.arrived, group, members, [&] {
    Var sum = sum_of_runs(b, v.parts, group * members, members, n);
    if (groups == 1) return give(sum);
    b.store(v.group_sums, {group * n}, sum);
    when_last(b, v.arrived, groups, groups, [&] { give(sum_of_runs(b, v.group_sums, 0, groups, n)); });
  });
}

}  // namespace

void build_rows(KernelBuilder& b, const RmsNormBackward& op, const Tile& tile, const Target& target, const Operands& v,
                const Workspaces& workspaces, const std::function<void(Var dweight)>& give) {
  const int64_t n = op.n, rows = tile.rows, programs = tile.programs;
  Var program = b.program_id(0), length = b.size(v.x, 0);
  Var share = b.cdiv(b.cdiv(length, programs), rows) * rows;
  Var first = program * share, end = b.min(length, first + share), part = program * n;
  // dy and x are read for the sums first: dx may be written over them.
  if (target.is_gpu()) {  // sums stay in registers
    Var sums = b.for_loop(first, end, rows, {b.full({rows, n}, 0.0)}, [&](Var row, std::vector<Var> sums) {
      const Rows values(b, op, v, row, rows);
      Var next = sums[0] + values.terms(b);
      values.store_dx(b, v);
      return std::vector{next};
    })[0];
    b.store(workspaces.parts, {part}, b.sum(sums, 0));
  } else {  // sums stay in the caches
    b.store(workspaces.parts, {part}, b.full({n}, 0.0));
    b.for_each(first, end, rows, [&](Var row) {
      const Rows values(b, op, v, row, rows);
      b.store_add(workspaces.parts, {part}, b.sum(values.terms(b), 0));
      values.store_dx(b, v);
    });
  }
  merge(b, workspaces, tile, n, give);
}

RowGradients reference_row(const RmsNormBackward& op, const std::vector<double>& dy, const std::vector<double>& x,
                           const std::vector<double>& weight) {
  const double n = static_cast<double>(x.size()), offset = op.weight_offset;
  double squares = 0, products = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    squares += x[i] * x[i];
    products += dy[i] * (offset + weight[i]) * x[i];
  }
  const double scale = 1 / std::sqrt(squares / n + op.eps);
  RowGradients result;
  for (size_t i = 0; i < x.size(); ++i) {
    const double g = dy[i] * (offset + weight[i]);
    result.dx.push_back(scale * (g - x[i] * scale * scale * products / n));
    result.terms.push_back(dy[i] * x[i] * scale);
  }
  return result;
}

}  // namespace rms_norm_backward_op

using namespace rms_norm_backward_op;

void RmsNormBackward::fields(FieldVisitor& v) {
  v.integer("n", n, 1, kMaxFeatures);
  v.number("eps", eps, 1e-12, 1);  // above 0, so that rows beyond the end, which are zeros, have a finite scale
  v.flag("residual", residual);
  v.number("weight_offset", weight_offset, -1, 1);
}

void RmsNormBackward::reference(const Tensors<Tensor>& t, std::span<const int64_t> rows,
                                Tensors<std::vector<double>>& out) const {
  const auto gradients = [&](int64_t row) {
    return reference_row(*this, read_row(t.dy, row), read_row(t.x, row), read_row(t.weight, 0));
  };
  for (const int64_t row : rows) {
    std::vector<double> dx = gradients(row).dx;
    const std::vector<double> beside = residual ? read_row(t.residual, row) : std::vector<double>();
    for (size_t i = 0; i < beside.size(); ++i) dx[i] += beside[i];
    out.dx.insert(out.dx.end(), dx.begin(), dx.end());
    if (row != 0) continue;
    out.dweight.assign(dx.size(), 0.0);
    for (int64_t other = 0; other < t.x.sizes[0]; ++other) {
      const std::vector<double> terms = gradients(other).terms;
      for (size_t i = 0; i < terms.size(); ++i) out.dweight[i] += terms[i];
    }
  }
}

/// dweight is a sum of as many terms of order 1 as there are rows: of the order of the root of that.
autotune::OpDef::Tolerance RmsNormBackward::tolerance(int64_t length) const {
  auto bound = kernels::tolerance(dtype, n + length);
  bound.absolute *= std::sqrt(static_cast<double>(length));
  return bound;
}

void RmsNormBackward::build(KernelBuilder& b, const Tensors<Var>& v, const Tile& tile, const Target& target) const {
  const Workspaces workspaces(b, tile);
  build_rows(b, *this, tile, target, v, workspaces, [&](Var sum) { b.store(v.dweight, {0, 0}, b.expand(sum, 0)); });
}

autotune::OpDef rms_norm_backward() {
  return tile_kernel<RmsNormBackward>("gradients of a root-mean-square norm's input and weight, the residual's added");
}

}  // namespace seqtile::kernels
