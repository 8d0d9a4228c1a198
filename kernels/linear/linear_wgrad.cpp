// kernels/linear/linear_wgrad.cpp -- see seqtile/ops/linear.h.
// SPDX-License-Identifier: Apache-2.0
//
// One program sums a block of dw over all rows, so that nothing is added across programs.
#include "seqtile/ops/linear.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "autotune/gpu_model.h"
#include "jit/base/cdiv.h"
#include "kernels/linear/linear_tile.h"
#include "seqtile/error.h"
#include "seqtile/kernel.h"

namespace seqtile::kernels {

using autotune::GpuSample;
using autotune::Problem;
using autotune::SizeExpr;
using linear_op::Tile;

namespace {

/// A left operand that lies as [k, m], and a k that only the call knows, are not for matrix registers.
Target without_matrix_registers(Target target) {
  target.has_matrix_registers = false;
  return target;
}

/// Gradients get smaller with the number of rows that a loss averages: sums are then of order 1.
bool fill(const Problem& p, size_t arg, uint64_t seed) {
  if (p.schema->args[arg].name != "dy") return false;
  fill_normal(p.tensors[arg], 0, 1 / std::sqrt(static_cast<double>(p.symbols[0])), seed);
  return true;
}

}  // namespace

void linear_op::visit_gradient(FieldVisitor& v, bool& accumulate, bool& f32_gradient) {
  static constexpr std::array<std::string_view, 2> kNames = {"operand", "f32"};
  v.flag("accumulate", accumulate);
  v.choice("gradient", f32_gradient, kNames);
}

void LinearWgrad::fields(FieldVisitor& v) {
  v.integer("n", n, 1, kMaxFeatures);
  v.integer("k", k, 1, kMaxFeatures);
  linear_op::visit_gradient(v, accumulate, f32_gradient);
}

Linear LinearWgrad::product(int64_t length) const {
  return {.n = k, .k = length, .residual = accumulate, .weight_layout = WeightLayout::transposed, .dtype = dtype};
}

std::vector<Tile> LinearWgrad::tiles(const Setting& s) const {
  const Target& target = s.target;
  std::vector<Tile> tiles = product(s.length).tiles({n, s.threads, without_matrix_registers(target)}, dw_dtype());
  // Sums that start from what is there leave the portable loop no registers to load far ahead, nor for the addresses of
  // wide rows.
  constexpr int64_t kMostSums = 128, kMostStages = 3, kMostColumns = 128;  // sums: of a thread
  std::erase_if(tiles, [&](const Tile& tile) {
    return target.is_gpu() && !target.has_wgmma && accumulate &&
           tile.block_m * tile.block_n >= kMostSums * tile.threads() &&
           (tile.num_stages > kMostStages || tile.block_n > kMostColumns);
  });
  return tiles;
}

void LinearWgrad::refuse(const Target& target) const {
  throw Error(ErrorCode::unsupported, fmt::format("linear_wgrad: no tile fits {}", target.name));
}

double LinearWgrad::predict_us(const Tile& tile, const Setting& s) const {
  return product(s.length).predict_us(tile, {n, s.threads, s.target});
}

autotune::GpuWork LinearWgrad::gpu_work(const Tile& tile, const Setting& s) const {
  autotune::GpuWork work = product(s.length).gpu_work(tile, {n, s.threads, s.target});
  // What has to be a multiple of 16 bytes are rows of dy and x, not the sum.
  work.uses_wgmma = autotune::may_use_wgmma(s.target, dtype, tile.block_m, tile.num_warps) && n % 8 == 0 && k % 8 == 0;
  return work;
}

/// One program, at two lengths, the last turn as full as that of the whole sum.
std::vector<GpuSample> LinearWgrad::gpu_samples(const Tile& t, int64_t length) const {
  const int64_t turns = cdiv(length, t.kc), few = t.num_stages + 1, more = few + 2;
  LinearWgrad small = *this;
  small.n = std::min(n, t.block_m), small.k = std::min(k, t.block_n);
  if (turns <= more) return {{small.workload(), length, 1}};
  const auto at = [&](int64_t count) { return length - (turns - count) * t.kc; };
  const double share = static_cast<double>(turns - few) / static_cast<double>(more - few);
  return {{small.workload(), at(few), 1 - share}, {small.workload(), at(more), share}};
}

double LinearWgrad::flops(int64_t length) const {
  return 2 * static_cast<double>(length) * static_cast<double>(n) * static_cast<double>(k);
}

std::array<SizeExpr, 3> LinearWgrad::grid(const Tile& t) const {
  return {SizeExpr{cdiv(n, t.block_m)}, SizeExpr{cdiv(k, t.block_n)}, SizeExpr{1}};
}

void LinearWgrad::build(KernelBuilder& b, const Tensors<Var>& v, const Tile& t, const Target& target) const {
  Var row = b.program_id(0) * t.block_m, column = b.program_id(1) * t.block_n;
  const auto there = [&] { return to_f32(b, b.load(v.before, {row, column}, {t.block_m, t.block_n})); };
  // A GPU's registers do not hold the sums beside what is there: they start from it.
  const bool starts_from_before = accumulate && target.is_gpu();
  Var start = starts_from_before ? there() : b.full({t.block_m, t.block_n}, 0.0);
  Var sum = linear_op::add_products_of_rows(b, t, v.dy, v.x, row, column, start);
  if (accumulate && !starts_from_before) sum = sum + there();
  b.store(v.dw, {row, column}, to_storage(b, sum, dw_dtype()));
}

void LinearWgrad::reference(const Tensors<Tensor>& t, std::span<const int64_t> rows,
                            Tensors<std::vector<double>>& out) const {
  out.dw.assign(rows.size() * static_cast<size_t>(k), 0.0);
  for (int64_t token = 0; token < t.dy.sizes[0]; ++token) {
    const std::vector<double> x = read_row(t.x, token);
    for (size_t r = 0; r < rows.size(); ++r) {
      const double gradient = read_element(t.dy, token * t.dy.strides[0] + rows[r] * t.dy.strides[1]);
      double* sums = out.dw.data() + r * x.size();
      for (size_t i = 0; i < x.size(); ++i) sums[i] += gradient * x[i];
    }
  }
  for (size_t r = 0; accumulate && r < rows.size(); ++r) {
    const std::vector<double> before = read_row(t.before, rows[r]);
    for (size_t i = 0; i < before.size(); ++i) out.dw[r * before.size() + i] += before[i];
  }
}

autotune::OpDef::Tolerance LinearWgrad::tolerance(int64_t length) const {
  return kernels::tolerance(dw_dtype(), length);
}

autotune::OpDef linear_wgrad() {
  autotune::OpDef op =
      tile_kernel<LinearWgrad>("dy^T x, the gradient of a linear layer's weight, added to what is there if wanted", 2);
  op.fill = fill;
  return op;
}

}  // namespace seqtile::kernels
