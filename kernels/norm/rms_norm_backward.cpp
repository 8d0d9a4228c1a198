// kernels/norm/rms_norm_backward.cpp -- see seqtile/ops/rows.h.
// SPDX-License-Identifier: Apache-2.0
#include "seqtile/ops/rows.h"

#include <cmath>

#include "kernels/norm/rms_norm_backward_kernel.h"
#include "kernels/norm/rms_norm_grid.h"
#include "seqtile/kernel.h"

namespace seqtile::kernels {

using autotune::Config;
using autotune::SizeExpr;
using autotune::Workload;
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

autotune::OpDef rms_norm_backward() {
  using Op = RmsNormBackward;
  autotune::OpDef op = typed_op<Op>("gradients of a root-mean-square norm's input and weight, the residual's added");
  op.config_space = [](const Workload& w, int64_t length, const Target& target) {
    return rms_norm_grid::config_space(op_of<Op>(w), w.threads, length, target);
  };
  op.default_config = [](const Workload& w, int64_t length, const Target& target) {
    return rms_norm_grid::default_config(op_of<Op>(w), w.threads, length, target);
  };
  op.predict_us = [](const Workload& w, const Config& config, int64_t length, const Target& target) {
    return rms_norm_grid::predict_us(op_of<Op>(w), config, w.threads, length, target);
  };
  op.gpu_work = [](const Workload& w, const Config& config, int64_t length, const Target&) {
    return rms_norm_grid::gpu_work(op_of<Op>(w), config, length);
  };
  op.grid = [](const Workload&, const Config& config) {
    return std::array<SizeExpr, 3>{SizeExpr{config.get_int("programs")}};
  };
  op.workspaces = [](const Workload& w, const Config& config) {
    return rms_norm_grid::workspaces(op_of<Op>(w).n, config);
  };
  op.build = [](KernelBuilder& b, const Workload& w, const Config& config, const Target& target) {
    const Op self = op_of<Op>(w);
    const auto v = views_of(self, b);
    const Workspaces workspaces(b, config);
    build_rows(b, self, config, target, v, workspaces, [&](Var sum) { b.store(v.dweight, {0, 0}, b.expand(sum, 0)); });
  };
  return op;
}

}  // namespace seqtile::kernels
