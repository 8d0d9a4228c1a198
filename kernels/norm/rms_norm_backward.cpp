// kernels/norm/rms_norm_backward.cpp -- see rms_norm_backward.h.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/norm/rms_norm_backward.h"

#include <algorithm>
#include <cmath>

#include "kernels/norm/rms_norm_backward_kernel.h"
#include "kernels/norm/rms_norm_grid.h"
#include "kernels/op/row_kernel.h"
#include "kernels/op/tensor_values.h"
#include "kernels/op/tolerance.h"
#include "kernels/op/workload_reader.h"

namespace seqtile::kernels {

using autotune::ArgRole;
using autotune::Config;
using autotune::Problem;
using autotune::Schema;
using autotune::SizeExpr;
using autotune::Workload;
using namespace rms_norm_backward_op;

namespace {

enum Arg { kDy, kX };  // weight is the third last

Workload normalize(const Workload& given) {
  WorkloadReader reader(given);
  read_fields(reader);
  return reader.finish();
}

Schema schema(const Workload& w) {
  const int64_t n = w.fields.get_int("n");
  Schema schema;
  schema.args.push_back({"dy", ArgRole::input, w.dtype, {"length", n}});
  schema.args.push_back({"x", ArgRole::input, w.dtype, {"length", n}});
  if (has_residual(w)) schema.args.push_back({"residual", ArgRole::input, w.dtype, {"length", n}});
  schema.args.push_back({"weight", ArgRole::weight, w.dtype, {n}});
  schema.args.push_back({"dx", ArgRole::output, w.dtype, {"length", n}});
  schema.args.back().in_place = {"dy", "x"};
  if (has_residual(w)) schema.args.back().in_place.push_back("residual");
  schema.args.push_back({"dweight", ArgRole::output, DType::f32, {1, n}});
  return schema;
}

autotune::Cost cost(const Workload& w, std::span<const int64_t> symbols) {
  const double n = static_cast<double>(w.fields.get_int("n")), elements = static_cast<double>(symbols[0]) * n;
  const double bytes = elements * static_cast<double>(dtype_bytes(w.dtype));
  return {12 * elements, bytes * (has_residual(w) ? 3 : 2), bytes + 4 * n};
}

RowGradients row_gradients(const Problem& p, int64_t row) {
  return reference_row(*p.workload, read_row(p.tensors[kDy], row), read_row(p.tensors[kX], row),
                       read_row(p.tensors[p.tensors.size() - 3], 0));
}

void reference(const Problem& p, std::span<const int64_t> rows, std::vector<std::vector<double>>& outputs) {
  outputs.assign(2, {});
  for (const int64_t row : rows) {
    std::vector<double> dx = row_gradients(p, row).dx;
    const std::vector<double> residual =
        has_residual(*p.workload) ? read_row(p.tensors[2], row) : std::vector<double>();
    for (size_t i = 0; i < residual.size(); ++i) dx[i] += residual[i];
    outputs[0].insert(outputs[0].end(), dx.begin(), dx.end());
    if (row != 0) continue;
    outputs[1].assign(dx.size(), 0.0);
    for (int64_t other = 0; other < p.tensors[kX].sizes[0]; ++other) {
      const std::vector<double> terms = row_gradients(p, other).terms;
      for (size_t i = 0; i < terms.size(); ++i) outputs[1][i] += terms[i];
    }
  }
}

bool fill(const Problem& p, size_t arg, uint64_t seed) {
  if (p.schema->args[arg].role != ArgRole::weight) return false;
  fill_normal(p.tensors[arg], 1 - p.workload->fields.get_double("weight_offset", 0), 0.1, seed);
  return true;
}

/// dweight is a sum of as many terms of order 1 as there are rows: of the order of the root of that.
autotune::OpDef::Tolerance gradient_tolerance(const Workload& w, std::span<const int64_t> symbols) {
  auto bound = tolerance(w.dtype, w.fields.get_int("n") + symbols[0]);
  bound.absolute *= std::sqrt(static_cast<double>(symbols[0]));
  return bound;
}

}  // namespace

Workload RmsNormBackward::workload() const {
  return {"rms_norm_backward",
          dtype,
          threads,
          {{"n", n}, {"eps", eps}, {"residual", int64_t{residual}}, {"weight_offset", weight_offset}}};
}

Call RmsNormBackward::pack(const Args& a, const autotune::Schema&) {
  Tensor dweight = a.dweight;  // one row, as the operation sees it
  if (dweight.rank == 1) dweight = make_tensor(dweight.data, dweight.dtype, {1, dweight.sizes[0]});
  return Call(a.x.sizes[0], {&a.dy, &a.x, &a.residual, &a.weight, &a.dx, &dweight});
}

autotune::OpDef rms_norm_backward() {
  autotune::OpDef op;
  op.name = "rms_norm_backward";
  op.summary = "gradients of a root-mean-square norm's input and weight, the residual's added";
  op.normalize = normalize;
  op.schema = schema;
  op.config_space = rms_norm_grid::config_space;
  op.default_config = rms_norm_grid::default_config;
  op.predict_us = rms_norm_grid::predict_us;
  op.gpu_work = rms_norm_grid::gpu_work;
  op.grid = [](const Workload&, const Config& config) {
    return std::array<SizeExpr, 3>{SizeExpr{config.get_int("programs")}};
  };
  op.workspaces = rms_norm_grid::workspaces;
  op.build = [](KernelBuilder& b, const Workload& w, const Config& config, const Target& target) {
    const Operands v(b, w);
    Var dweight = b.view("dweight", DType::f32, {1, w.fields.get_int("n")});
    const Workspaces workspaces(b, config);
    build_rows(b, w, config, target, v, workspaces, [&](Var sum) { b.store(dweight, {0, 0}, b.expand(sum, 0)); });
  };
  op.cost = cost;
  op.fill = fill;
  op.reference = reference;
  op.tolerance = gradient_tolerance;
  return op;
}

}  // namespace seqtile::kernels
