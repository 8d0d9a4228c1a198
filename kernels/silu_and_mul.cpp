// kernels/silu_and_mul.cpp -- see silu_and_mul.h.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/silu_and_mul.h"

#include "kernels/activation.h"
#include "kernels/row_kernel.h"
#include "kernels/tensor_values.h"
#include "kernels/tolerance.h"
#include "kernels/workload_reader.h"

namespace seqtile::kernels {

using autotune::ArgRole;
using autotune::Config;
using autotune::Problem;
using autotune::Schema;
using autotune::Workload;

namespace {

Workload normalize(const Workload& given) {
  WorkloadReader reader(given);
  reader.required("n", 1, kMaxFeatures / 2);
  return reader.finish();
}

Schema schema(const Workload& w) {
  const int64_t n = w.fields.get_int("n");
  Schema schema;
  schema.args.push_back({"x", ArgRole::input, w.dtype, {"length", 2 * n}});
  schema.args.push_back({"y", ArgRole::output, w.dtype, {"length", n}});
  return schema;
}

void build(KernelBuilder& b, const Workload& w, const Config& config, const Target&) {
  const int64_t n = w.fields.get_int("n"), rows = config.get_int("rows");
  Var x = b.view("x", w.dtype, {kDynamic, 2 * n}), y = b.view("y", w.dtype, {kDynamic, n});

  Var row = b.program_id(0) * rows;
  Var gate = to_f32(b, b.load(x, {row, 0}, {rows, n}));
  Var up = to_f32(b, b.load(x, {row, n}, {rows, n}));
  b.store(y, {row, 0}, to_storage(b, b.silu(gate) * up, w.dtype));
}

autotune::Cost cost(const Workload& w, std::span<const int64_t> symbols) {
  const double elements = static_cast<double>(symbols[0] * w.fields.get_int("n"));
  const double bytes = elements * static_cast<double>(dtype_bytes(w.dtype));
  return {12 * elements, 2 * bytes, bytes};
}

void reference(const Problem& p, std::span<const int64_t> rows, std::vector<std::vector<double>>& outputs) {
  outputs.assign(1, {});
  for (const int64_t row : rows) {
    const std::vector<double> x = read_row(p.tensors[0], row);
    const size_t n = x.size() / 2;
    for (size_t i = 0; i < n; ++i) outputs[0].push_back(activate(Activation::silu, x[i]) * x[n + i]);
  }
}

}  // namespace

autotune::OpDef silu_and_mul() {
  autotune::OpDef op;
  op.name = "silu_and_mul";
  op.summary = "silu of the left half of each row times its right half";
  op.normalize = normalize;
  op.schema = schema;
  define_row_kernel(
      op, [](const Workload& w) { return w.fields.get_int("n"); }, cost);
  op.build = build;
  op.reference = reference;
  op.tolerance = [](const Workload& w, std::span<const int64_t>) { return tolerance(w.dtype, 1); };
  return op;
}

}  // namespace seqtile::kernels
