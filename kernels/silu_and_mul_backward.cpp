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

int64_t cdiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

/// Columns of a program. Rows of wide models are cut into equal parts, so that a GPU's threads hold what they compute
/// with in registers: six values of a column. Where that is not possible parts are smaller, as threads then test and
/// address each element for itself, and the last one is shorter.
int64_t block_columns(const Workload& w) {
  constexpr int64_t kMost = 4096, kMostParts = 2, kMostOfUnequal = 1024, kAligned = 8;
  const int64_t n = w.fields.get_int("n"), fewest = cdiv(n, kMost);
  for (int64_t parts = fewest; parts <= kMostParts * fewest; ++parts)
    if (n % (parts * kAligned) == 0) return n / parts;
  if (n <= kMostOfUnequal) return n;
  return cdiv(cdiv(n, cdiv(n, kMostOfUnequal)), kAligned) * kAligned;
}

int64_t num_blocks(const Workload& w) { return cdiv(w.fields.get_int("n"), block_columns(w)); }

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
  schema.args.push_back(
      {.name = "dx", .role = ArgRole::output, .dtype = w.dtype, .dims = {"length", 2 * n}, .in_place = {"x"}});
  return schema;
}

void build(KernelBuilder& b, const Workload& w, const Config& config, const Target&) {
  const int64_t n = w.fields.get_int("n"), rows = config.get_int("rows"), columns = block_columns(w);
  Var gradient = b.view("dy", w.dtype, {kDynamic, n}), x = b.view("x", w.dtype, {kDynamic, 2 * n});
  Var dx = b.view("dx", w.dtype, {kDynamic, 2 * n});

  // Views of a half, so that the last part ends where the half does.
  const auto half = [&](Var view, int64_t first) { return b.slice(view, {0, first}, {b.size(view, 0), n}); };
  Var row = b.program_id(0) * rows, column = b.program_id(1) * columns;
  const auto load = [&](Var view) { return to_f32(b, b.load(view, {row, column}, {rows, columns})); };
  Var dy = load(gradient), gate = load(half(x, 0)), up = load(half(x, n));
  Var s = b.sigmoid(gate), slope = s * (1.0 + gate * (1.0 - s));
  b.store(half(dx, 0), {row, column}, to_storage(b, dy * up * slope, w.dtype));
  b.store(half(dx, n), {row, column}, to_storage(b, dy * gate * s, w.dtype));
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
  op.version = 2;
  op.name = "silu_and_mul_backward";
  op.summary = "gradients of both halves of silu(left half) * right half";
  op.normalize = normalize;
  op.schema = schema;
  define_row_kernel(
      op, [](const Workload& w) { return block_columns(w) * 3; }, cost);
  op.grid = [](const Workload& w, const Config& config) {
    return std::array<SizeExpr, 3>{SizeExpr{1, {{0, config.get_int("rows")}}}, SizeExpr{num_blocks(w)}};
  };
  op.gpu_work = [of_rows = op.gpu_work](const Workload& w, const Config& config, int64_t length, const Target& target) {
    autotune::GpuWork work = of_rows(w, config, length, target);
    const double parts = static_cast<double>(num_blocks(w));
    work.programs *= parts, work.l2_bytes /= parts;
    return work;
  };
  op.build = build;
  op.reference = reference;
  op.tolerance = [](const Workload& w, std::span<const int64_t>) { return tolerance(w.dtype, 1); };
  return op;
}

}  // namespace seqtile::kernels
