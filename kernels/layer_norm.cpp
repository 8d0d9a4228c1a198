// kernels/layer_norm.cpp -- see layer_norm.h.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/layer_norm.h"

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

bool has_bias(const Workload& w) { return w.fields.get_int("bias") != 0; }
bool has_residual(const Workload& w) { return w.fields.get_int("residual") != 0; }

Workload normalize(const Workload& given) {
  WorkloadReader reader(given);
  reader.required("n", 1, kMaxFeatures);
  reader.number("eps", 1e-5, 0, 1);
  reader.integer("bias", 1, 0, 1);
  reader.flag("residual");
  return reader.finish();
}

Schema schema(const Workload& w) {
  const int64_t n = w.fields.get_int("n");
  Schema schema;
  schema.args.push_back({"x", ArgRole::input, w.dtype, {"length", n}});
  if (has_residual(w)) schema.args.push_back({"residual", ArgRole::input, w.dtype, {"length", n}});
  schema.args.push_back({"weight", ArgRole::weight, w.dtype, {n}});
  if (has_bias(w)) schema.args.push_back({"bias", ArgRole::weight, w.dtype, {n}});
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
  Var x = b.view("x", w.dtype, {kDynamic, n}), residual, bias, sum;
  if (has_residual(w)) residual = b.view("residual", w.dtype, {kDynamic, n});
  Var weight = b.view("weight", w.dtype, {n});
  if (has_bias(w)) bias = b.view("bias", w.dtype, {n});
  Var y = b.view("y", w.dtype, {kDynamic, n});
  if (has_residual(w)) sum = b.view("sum", w.dtype, {kDynamic, n});

  const double inverse_n = 1.0 / static_cast<double>(n);
  Var row = b.program_id(0) * rows;
  Var value = to_f32(b, b.load(x, {row, 0}, {rows, n}));
  if (has_residual(w)) {
    value = value + to_f32(b, b.load(residual, {row, 0}, {rows, n}));
    b.store(sum, {row, 0}, to_storage(b, value, w.dtype));
  }
  value = value - across(b, b.sum(value, 1) * inverse_n, rows, n);
  Var variance = b.sum(value * value, 1) * inverse_n;
  Var scale = b.unary(ir::OpKind::rsqrt, variance + w.fields.get_double("eps", 0));
  value = value * across(b, scale, rows, n) * down(b, to_f32(b, b.load(weight, {0}, {n})), rows, n);
  if (has_bias(w)) value = value + down(b, to_f32(b, b.load(bias, {0}, {n})), rows, n);
  b.store(y, {row, 0}, to_storage(b, value, w.dtype));
}

autotune::Cost cost(const Workload& w, std::span<const int64_t> symbols) {
  const double elements = static_cast<double>(symbols[0] * w.fields.get_int("n"));
  const double bytes = elements * static_cast<double>(dtype_bytes(w.dtype)) * (has_residual(w) ? 2 : 1);
  return {7 * elements, bytes, bytes};
}

void reference(const Problem& p, std::span<const int64_t> rows, std::vector<std::vector<double>>& outputs) {
  const auto& fields = p.workload->fields;
  const bool residual = has_residual(*p.workload);
  const std::vector<double> weight = read_row(p.tensors[residual ? 2 : 1], 0);
  const std::vector<double> bias =
      has_bias(*p.workload) ? read_row(p.tensors[residual ? 3 : 2], 0) : std::vector<double>(weight.size(), 0.0);
  const double n = static_cast<double>(weight.size());
  outputs.assign(residual ? 2 : 1, {});
  for (const int64_t row : rows) {
    std::vector<double> x = read_row(p.tensors[0], row);
    if (residual) {
      const std::vector<double> added = read_row(p.tensors[1], row);
      for (size_t i = 0; i < x.size(); ++i) x[i] += added[i];
      outputs[1].insert(outputs[1].end(), x.begin(), x.end());
    }
    double mean = 0, variance = 0;
    for (const double v : x) mean += v / n;
    for (const double v : x) variance += (v - mean) * (v - mean) / n;
    const double scale = 1 / std::sqrt(variance + fields.get_double("eps", 0));
    for (size_t i = 0; i < x.size(); ++i) outputs[0].push_back((x[i] - mean) * scale * weight[i] + bias[i]);
  }
}

bool fill(const Problem& p, size_t arg, uint64_t seed) {
  if (p.schema->args[arg].role != ArgRole::weight) return false;
  fill_normal(p.tensors[arg], p.schema->args[arg].name == "weight" ? 1 : 0, 0.1, seed);
  return true;
}

}  // namespace

Workload LayerNorm::workload() const {
  return {
      "layer_norm", dtype, threads, {{"n", n}, {"eps", eps}, {"bias", int64_t{bias}}, {"residual", int64_t{residual}}}};
}

autotune::OpDef layer_norm() {
  autotune::OpDef op;
  op.name = "layer_norm";
  op.summary = "layer norm of each row, with residual add";
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
