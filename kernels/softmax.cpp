// kernels/softmax.cpp -- see softmax.h.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/softmax.h"

#include <algorithm>
#include <cmath>
#include <numbers>

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
  reader.required("n", 1, kMaxFeatures);
  return reader.finish();
}

Schema schema(const Workload& w) {
  const int64_t n = w.fields.get_int("n");
  Schema schema;
  schema.args.push_back({"x", ArgRole::input, w.dtype, {"length", n}});
  schema.args.push_back(
      {.name = "y", .role = ArgRole::output, .dtype = w.dtype, .dims = {"length", n}, .in_place = {"x"}});
  return schema;
}

void build(KernelBuilder& b, const Workload& w, const Config& config, const Target&) {
  const int64_t n = w.fields.get_int("n"), rows = config.get_int("rows");
  Var x = b.view("x", w.dtype, {kDynamic, n}), y = b.view("y", w.dtype, {kDynamic, n});

  Var row = b.program_id(0) * rows;
  Var value = to_f32(b, b.load(x, {row, 0}, {rows, n}));
  value = (value - across(b, b.reduce_max(value, 1), rows, n)) * std::numbers::log2e;
  Var power = b.unary(ir::OpKind::exp2, value);
  power = power * across(b, 1.0 / b.sum(power, 1), rows, n);
  b.store(y, {row, 0}, to_storage(b, power, w.dtype));
}

autotune::Cost cost(const Workload& w, std::span<const int64_t> symbols) {
  const double elements = static_cast<double>(symbols[0] * w.fields.get_int("n"));
  const double bytes = elements * static_cast<double>(dtype_bytes(w.dtype));
  return {12 * elements, bytes, bytes};
}

void reference(const Problem& p, std::span<const int64_t> rows, std::vector<std::vector<double>>& outputs) {
  outputs.assign(1, {});
  for (const int64_t row : rows) {
    std::vector<double> x = read_row(p.tensors[0], row);
    const double top = *std::max_element(x.begin(), x.end());
    double sum = 0;
    for (double& v : x) sum += v = std::exp(v - top);
    for (const double v : x) outputs[0].push_back(v / sum);
  }
}

}  // namespace

autotune::OpDef softmax() {
  autotune::OpDef op;
  op.name = "softmax";
  op.summary = "softmax of each row";
  op.normalize = normalize;
  op.schema = schema;
  define_row_kernel(
      op, [](const Workload& w) { return w.fields.get_int("n") * 2; }, cost);
  op.build = build;
  op.reference = reference;
  // Probabilities are of order 1 / n: the absolute part must be small beside them.
  op.tolerance = [](const Workload& w, std::span<const int64_t>) {
    auto bound = tolerance(w.dtype, w.fields.get_int("n"));
    bound.relative += bound.absolute;
    bound.absolute = w.dtype == DType::f16 ? 0x1p-24 : 1e-9;
    return bound;
  };
  return op;
}

}  // namespace seqtile::kernels
