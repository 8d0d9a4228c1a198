// kernels/linear/linear.cpp -- see seqtile/ops/linear.h.
// SPDX-License-Identifier: Apache-2.0
#include "seqtile/ops/linear.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/linear/linear_reference.h"
#include "kernels/linear/linear_tile.h"
#include "seqtile/error.h"
#include "seqtile/kernel.h"

namespace seqtile::kernels {

namespace {

constexpr std::array<std::string_view, 2> kPrecisionNames = {"f32", "tf32"};
constexpr std::array<std::string_view, 3> kLayoutNames = {"plain", "packed", "transposed"};

}  // namespace

void Linear::fields(FieldVisitor& v) {
  v.integer("n", n, 1, kMaxFeatures);
  v.integer("k", k, 1, kMaxFeatures);
  v.integer("n2", n2, 0, kMaxFeatures);
  v.integer("n3", n3, 0, kMaxFeatures);
  if (n3 && !n2) v.refuse("n3", "needs n2: weights are numbered without gaps");
  v.flag("bias", bias);
  v.choice("activation", activation, kActivationNames);
  v.flag("gated", gated);
  if (gated && n2) v.refuse("gated", "needs n2 = 0: both weights of a gated pair have n columns");
  v.flag("residual", residual);
  if (residual && n2) v.refuse("residual", "needs n2 = 0: a residual belongs to a single output");
  if (dtype == DType::f32 || tf32) v.choice("precision", tf32, kPrecisionNames);
  else v.absent("precision", "needs dtype f32");
  constexpr double kMost = 1e6;
  v.late_number("scale", scale, 1, -kMost, kMost);
  if (scale == 0) v.refuse("scale", "must not be 0");
  v.late_number("soft_cap", soft_cap, 0, 0, kMost);
  v.choice("weight_layout", weight_layout, kLayoutNames);
  if (is_packed() && panel == 0) panel = 32;
  v.integer("panel", panel, is_packed() ? 4 : 0, 256);
  if (!is_packed() && panel != 0) v.refuse("panel", "needs weight_layout = packed");
}

autotune::Workload Linear::workload() const {
  Linear op = *this;
  if (is_packed() && panel == 0) op.panel = default_panel(host_target());
  return workload_of(op);
}

std::vector<int64_t> Linear::columns() const {
  std::vector<int64_t> columns{n};
  for (const int64_t more : {n2, n3})
    if (more) columns.push_back(more);
  return columns;
}

double Linear::deviation() const { return 1 / std::sqrt(static_cast<double>(k)); }

void Linear::refuse(const Target& target) const {
  throw Error(
      ErrorCode::unsupported,
      fmt::format("linear: panel = {} does not fit {}; take {} (default_panel) or another multiple of {}, up to "
                  "{}",
                  panel, target.name, default_panel(target), target.lanes_f32(), 4 * target.lanes_f32()));
}

double Linear::flops(int64_t length) const {
  return 2 * static_cast<double>(length) * static_cast<double>(n + n2 + n3) * weights_per_loop() *
         static_cast<double>(k);
}

std::array<autotune::SizeExpr, 3> Linear::grid(const linear_op::Tile& t) const {
  using autotune::SizeExpr;
  return {SizeExpr{1, {{0, t.block_m}}}, SizeExpr{linear_op::column_blocks(*this, t.block_n)}, SizeExpr{1}};
}

/// One program: a block of rows of x against a block of columns of one output.
void Linear::build(KernelBuilder& b, const Tensors<Var>& views, const linear_op::Tile& t, const Target&) const {
  linear_op::Operands v(*this, views);
  Var row = b.program_id(0) * t.block_m;
  Var column = v.choose(b, *this, b.program_id(1), t.block_n);
  linear_op::store_result(b, *this, v, row, column, linear_op::multiply(b, *this, t, v, row, column));
}

void Linear::reference(const Tensors<Tensor>& t, std::span<const int64_t> rows,
                       Tensors<std::vector<double>>& out) const {
  std::vector<std::vector<double>> x;
  for (const int64_t row : rows) x.push_back(read_row(t.x, row));
  out = linear_op::reference_epilogue(*this, t, rows, linear_op::reference_products(*this, t, x));
}

autotune::OpDef::Tolerance Linear::tolerance() const {
  auto allowed = kernels::tolerance(dtype, k);
  if (tf32) allowed.absolute += kTf32Error;
  allowed.absolute *= std::max(1.0, std::abs(scale));
  return allowed;
}

int64_t default_panel(const Target& target) { return 2 * target.lanes_f32(); }

int64_t packed_linear_elements(int64_t n, int64_t k, int64_t panel) { return (n + panel - 1) / panel * panel * k; }

void pack_linear_weight(const Tensor& weight, const Tensor& packed) {
  const int64_t n = weight.sizes[0], k = weight.sizes[1], panel = packed.sizes[2];
  const bool fits = weight.rank == 2 && packed.rank == 3 && panel > 0 && packed.sizes[0] == (n + panel - 1) / panel &&
                    packed.sizes[1] == k && packed.dtype == weight.dtype && packed.strides[2] == 1 &&
                    packed.strides[1] == panel && packed.strides[0] == k * panel;
  if (!fits)
    throw Error(ErrorCode::invalid_argument, "pack_linear_weight: a weight [" + std::to_string(n) + ", " +
                                                 std::to_string(k) +
                                                 "] needs a dense [ceil(n / panel), k, panel] tensor " +
                                                 "of the same dtype; see packed_linear_elements()");
  const int64_t bytes = dtype_bytes(weight.dtype);
  const auto* from = static_cast<const std::byte*>(weight.data);
  auto* to = static_cast<std::byte*>(packed.data);
  std::memset(to, 0, static_cast<size_t>(packed_linear_elements(n, k, panel) * bytes));
  for (int64_t column = 0; column < n; ++column)
    for (int64_t kk = 0; kk < k; ++kk)
      std::memcpy(to + ((column / panel * k + kk) * panel + column % panel) * bytes,
                  from + (column * weight.strides[0] + kk * weight.strides[1]) * bytes, static_cast<size_t>(bytes));
}

autotune::OpDef linear() {
  return tile_kernel<Linear>("x w^T with bias, activation, gate, scale, soft cap or residual; one to three weights");
}

}  // namespace seqtile::kernels
