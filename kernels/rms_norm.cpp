// kernels/rms_norm.cpp -- see rms_norm.h.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/rms_norm.h"

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
using autotune::Workload;

namespace {

bool has_residual(const Workload& w) { return w.fields.get_int("residual") != 0; }

Workload normalize(const Workload& given) {
  WorkloadReader reader(given);
  reader.required("n", 1, kMaxFeatures);
  reader.number("eps", 1e-5, 0, 1);
  reader.flag("residual");
  reader.number("weight_offset", 0, -1, 1);
  return reader.finish();
}

Schema schema(const Workload& w) {
  const int64_t n = w.fields.get_int("n");
  Schema schema;
  schema.args.push_back({"x", ArgRole::input, w.dtype, {"length", n}});
  if (has_residual(w)) schema.args.push_back({"residual", ArgRole::input, w.dtype, {"length", n}});
  schema.args.push_back({"weight", ArgRole::weight, w.dtype, {n}});
  std::vector<std::string> inputs{"x"};
  if (has_residual(w)) inputs.push_back("residual");
  const auto add_output = [&](const char* name) {
    schema.args.push_back(
        {.name = name, .role = ArgRole::output, .dtype = w.dtype, .dims = {"length", n}, .in_place = inputs});
  };
  add_output("y");
  if (has_residual(w)) add_output("sum");
  return schema;
}

void build(KernelBuilder& b, const Workload& w, const Config& config, const Target&) {
  const int64_t n = w.fields.get_int("n"), rows = config.get_int("rows");
  const bool residual = has_residual(w);
  Var x = b.view("x", w.dtype, {kDynamic, n}), r, sum;
  if (residual) r = b.view("residual", w.dtype, {kDynamic, n});
  Var weight = b.view("weight", w.dtype, {n}), y = b.view("y", w.dtype, {kDynamic, n});
  if (residual) sum = b.view("sum", w.dtype, {kDynamic, n});

  Var row = b.program_id(0) * rows;
  Var value = to_f32(b, b.load(x, {row, 0}, {rows, n}));
  if (residual) {
    value = value + to_f32(b, b.load(r, {row, 0}, {rows, n}));
    b.store(sum, {row, 0}, to_storage(b, value, w.dtype));
  }
  Var mean_square = b.sum(value * value, 1) * (1.0 / static_cast<double>(n));
  Var scale = b.unary(ir::OpKind::rsqrt, mean_square + w.fields.get_double("eps", 0));
  Var gain = to_f32(b, b.load(weight, {0}, {n}));
  if (const double offset = w.fields.get_double("weight_offset", 0); offset != 0) gain = gain + offset;
  value = value * across(b, scale, rows, n) * down(b, gain, rows, n);
  b.store(y, {row, 0}, to_storage(b, value, w.dtype));
}

autotune::Cost cost(const Workload& w, std::span<const int64_t> symbols) {
  const double elements = static_cast<double>(symbols[0] * w.fields.get_int("n"));
  const double bytes = elements * static_cast<double>(dtype_bytes(w.dtype)) * (has_residual(w) ? 2 : 1);
  return {4 * elements, bytes, bytes};
}

void reference(const Problem& p, std::span<const int64_t> rows, std::vector<std::vector<double>>& outputs) {
  const auto& fields = p.workload->fields;
  const bool residual = has_residual(*p.workload);
  const std::vector<double> weight = read_row(p.tensors[residual ? 2 : 1], 0);
  outputs.assign(residual ? 2 : 1, {});
  for (const int64_t row : rows) {
    std::vector<double> value = read_row(p.tensors[0], row);
    if (residual) {
      const std::vector<double> added = read_row(p.tensors[1], row);
      for (size_t i = 0; i < value.size(); ++i) value[i] += added[i];
      outputs[1].insert(outputs[1].end(), value.begin(), value.end());
    }
    double squares = 0;
    for (const double v : value) squares += v * v;
    const double scale = 1 / std::sqrt(squares / static_cast<double>(value.size()) + fields.get_double("eps", 0));
    for (size_t i = 0; i < value.size(); ++i)
      outputs[0].push_back(value[i] * scale * (fields.get_double("weight_offset", 0) + weight[i]));
  }
}

bool fill(const Problem& p, size_t arg, uint64_t seed) {
  if (p.schema->args[arg].role != ArgRole::weight) return false;
  fill_normal(p.tensors[arg], 1 - p.workload->fields.get_double("weight_offset", 0), 0.1, seed);
  return true;
}

}  // namespace

Workload RmsNorm::workload() const {
  return {"rms_norm",
          dtype,
          threads,
          {{"n", n}, {"eps", eps}, {"residual", int64_t{residual}}, {"weight_offset", weight_offset}}};
}

autotune::OpDef rms_norm() {
  autotune::OpDef op;
  op.name = "rms_norm";
  op.summary = "root-mean-square norm of each row, with residual add";
  op.normalize = normalize;
  op.schema = schema;
  define_row_kernel(
      op, [](const Workload& w) { return w.fields.get_int("n") * 2; }, cost);
  op.build = build;
  op.fill = fill;
  op.reference = reference;
  op.tolerance = [](const Workload& w, std::span<const int64_t>) { return tolerance(w.dtype, w.fields.get_int("n")); };
  return op;
}

}  // namespace seqtile::kernels
