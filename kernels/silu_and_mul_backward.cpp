// kernels/silu_and_mul_backward.cpp -- see silu_and_mul_backward.h.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/silu_and_mul_backward.h"

#include <cmath>

#include "kernels/row_kernel.h"
#include "kernels/tensor_values.h"
#include "kernels/tolerance.h"
#include "kernels/workload_reader.h"

namespace seqtile::kernels {

using autotune::ArgRole;
using autotune::Config;
using autotune::Problem;
using autotune::Schema;
using autotune::SizeExpr;
using autotune::Workload;

namespace {

/// Columns of a program. Rows of wide models are cut into equal parts, so that a GPU's threads hold what they compute
/// with in registers: six values of a column.
int64_t block_columns(const Workload& w) {
  constexpr int64_t kMost = 4096, kAligned = 8;
  const int64_t n = w.fields.get_int("n");
  for (int64_t parts = (n + kMost - 1) / kMost; parts <= n / kAligned; ++parts)
    if (n % (parts * kAligned) == 0) return n / parts;
  return n;
}

Workload normalize(const Workload& given) {
  WorkloadReader reader(given);
  reader.required("n", 1, kMaxFeatures / 2);
  return reader.finish();
}

Schema schema(const Workload& w) {
  const int64_t n = w.fields.get_int("n");
  Schema schema;
  schema.args.push_back({"dy", ArgRole::input, w.dtype, {"length", n}});
  schema.args.push_back({"x", ArgRole::input, w.dtype, {"length", 2 * n}});
  schema.args.push_back({"dx", ArgRole::output, w.dtype, {"length", 2 * n}});
  return schema;
}

void build(KernelBuilder& b, const Workload& w, const Config& config, const Target&) {
  const int64_t n = w.fields.get_int("n"), rows = config.get_int("rows"), columns = block_columns(w);
  Var gradient = b.view("dy", w.dtype, {kDynamic, n}), x = b.view("x", w.dtype, {kDynamic, 2 * n});
  Var dx = b.view("dx", w.dtype, {kDynamic, 2 * n});

  Var row = b.program_id(0) * rows, left = b.program_id(1) * columns, right = left + n;
  Var dy = to_f32(b, b.load(gradient, {row, left}, {rows, columns}));
  Var gate = to_f32(b, b.load(x, {row, left}, {rows, columns}));
  Var up = to_f32(b, b.load(x, {row, right}, {rows, columns}));
  Var s = b.sigmoid(gate), slope = s * (1.0 + gate * (1.0 - s));
  b.store(dx, {row, left}, to_storage(b, dy * up * slope, w.dtype));
  b.store(dx, {row, right}, to_storage(b, dy * gate * s, w.dtype));
}

autotune::Cost cost(const Workload& w, std::span<const int64_t> symbols) {
  const double elements = static_cast<double>(symbols[0] * w.fields.get_int("n"));
  const double bytes = elements * static_cast<double>(dtype_bytes(w.dtype));
  return {18 * elements, 3 * bytes, 2 * bytes};
}

void reference(const Problem& p, std::span<const int64_t> rows, std::vector<std::vector<double>>& outputs) {
  outputs.assign(1, {});
  for (const int64_t row : rows) {
    const std::vector<double> dy = read_row(p.tensors[0], row), x = read_row(p.tensors[1], row);
    const size_t n = dy.size();
    std::vector<double> dgate, dup;
    for (size_t i = 0; i < n; ++i) {
      const double gate = x[i], s = 1 / (1 + std::exp(-gate));
      dgate.push_back(dy[i] * x[n + i] * s * (1 + gate * (1 - s)));
      dup.push_back(dy[i] * gate * s);
    }
    outputs[0].insert(outputs[0].end(), dgate.begin(), dgate.end());
    outputs[0].insert(outputs[0].end(), dup.begin(), dup.end());
  }
}

}  // namespace

autotune::OpDef silu_and_mul_backward() {
  autotune::OpDef op;
  op.name = "silu_and_mul_backward";
  op.summary = "gradients of both halves of silu(left half) * right half";
  op.normalize = normalize;
  op.schema = schema;
  define_row_kernel(
      op, [](const Workload& w) { return block_columns(w) * 3; }, cost);
  op.grid = [](const Workload& w, const Config& config) {
    return std::array<SizeExpr, 3>{SizeExpr{1, {{0, config.get_int("rows")}}},
                                   SizeExpr{w.fields.get_int("n") / block_columns(w)}};
  };
  op.gpu_work = [of_rows = op.gpu_work](const Workload& w, const Config& config, int64_t length, const Target& target) {
    autotune::GpuWork work = of_rows(w, config, length, target);
    const double parts = static_cast<double>(w.fields.get_int("n") / block_columns(w));
    work.programs *= parts, work.l2_bytes /= parts;
    return work;
  };
  op.build = build;
  op.reference = reference;
  op.tolerance = [](const Workload& w, std::span<const int64_t>) { return tolerance(w.dtype, 1); };
  return op;
}

}  // namespace seqtile::kernels
