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
bool norms_x(const Workload& w) { return has_residual(w) && w.fields.get_string("normed") != "sum"; }
bool has_result(const Workload& w) { return !has_residual(w) || w.fields.get_string("normed") != "x"; }

Workload normalize(const Workload& given) {
  WorkloadReader reader(given);
  reader.required("n", 1, kMaxFeatures);
  reader.number("eps", 1e-5, 0, 1);
  const bool residual = reader.flag("residual");
  if (reader.choice("normed", {"sum", "x", "both"}) != "sum" && !residual)
    reader.refuse("normed", "needs residual = 1: without one there is a single norm");
  reader.number("weight_offset", 0, -1, 1);
  return reader.finish();
}

Schema schema(const Workload& w) {
  const int64_t n = w.fields.get_int("n");
  Schema schema;
  schema.args.push_back({"x", ArgRole::input, w.dtype, {"length", n}});
  if (has_residual(w)) schema.args.push_back({"residual", ArgRole::input, w.dtype, {"length", n}});
  if (norms_x(w)) schema.args.push_back({"x_weight", ArgRole::weight, w.dtype, {n}});
  if (has_result(w)) schema.args.push_back({"weight", ArgRole::weight, w.dtype, {n}});
  std::vector<std::string> inputs{"x"};
  if (has_residual(w)) inputs.push_back("residual");
  const auto add_output = [&](const char* name) {
    schema.args.push_back(
        {.name = name, .role = ArgRole::output, .dtype = w.dtype, .dims = {"length", n}, .in_place = inputs});
  };
  if (has_result(w)) add_output("y");
  if (has_residual(w)) add_output("sum");
  return schema;
}

/// Of rows of f32.
Var norm_of(KernelBuilder& b, const Workload& w, Var value, Var weight) {
  const int64_t rows = value.type().shape[0], n = value.type().shape[1];
  Var mean_square = b.sum(value * value, 1) * (1.0 / static_cast<double>(n));
  Var scale = b.unary(ir::OpKind::rsqrt, mean_square + w.fields.get_double("eps", 0));
  Var gain = to_f32(b, b.load(weight, {0}, {n}));
  if (const double offset = w.fields.get_double("weight_offset", 0); offset != 0) gain = gain + offset;
  return value * across(b, scale, rows, n) * down(b, gain, rows, n);
}

void build(KernelBuilder& b, const Workload& w, const Config& config, const Target&) {
  const int64_t n = w.fields.get_int("n"), rows = config.get_int("rows");
  Var x = b.view("x", w.dtype, {kDynamic, n}), residual, x_weight, weight, y, sum;
  if (has_residual(w)) residual = b.view("residual", w.dtype, {kDynamic, n});
  if (norms_x(w)) x_weight = b.view("x_weight", w.dtype, {n});
  if (has_result(w)) weight = b.view("weight", w.dtype, {n});
  if (has_result(w)) y = b.view("y", w.dtype, {kDynamic, n});
  if (has_residual(w)) sum = b.view("sum", w.dtype, {kDynamic, n});

  Var row = b.program_id(0) * rows;
  Var value = to_f32(b, b.load(x, {row, 0}, {rows, n}));
  if (norms_x(w)) value = norm_of(b, w, value, x_weight);
  if (has_residual(w)) {
    value = value + to_f32(b, b.load(residual, {row, 0}, {rows, n}));
    b.store(sum, {row, 0}, to_storage(b, value, w.dtype));
  }
  if (has_result(w)) b.store(y, {row, 0}, to_storage(b, norm_of(b, w, value, weight), w.dtype));
}

autotune::Cost cost(const Workload& w, std::span<const int64_t> symbols) {
  const double elements = static_cast<double>(symbols[0] * w.fields.get_int("n"));
  const double bytes = elements * static_cast<double>(dtype_bytes(w.dtype));
  const int read = has_residual(w) ? 2 : 1, written = has_residual(w) + has_result(w),
            norms = norms_x(w) + has_result(w);
  return {4 * elements * norms, bytes * read, bytes * written};
}

void normalize_row(const Workload& w, const std::vector<double>& weight, std::vector<double>& value) {
  double squares = 0;
  for (const double v : value) squares += v * v;
  const double mean = squares / static_cast<double>(value.size());
  const double scale = 1 / std::sqrt(mean + w.fields.get_double("eps", 0));
  for (size_t i = 0; i < value.size(); ++i) value[i] *= scale * (w.fields.get_double("weight_offset", 0) + weight[i]);
}

void reference(const Problem& p, std::span<const int64_t> rows, std::vector<std::vector<double>>& outputs) {
  const Workload& w = *p.workload;
  const size_t first_weight = has_residual(w) ? 2 : 1;
  const std::vector<double> x_weight = norms_x(w) ? read_row(p.tensors[first_weight], 0) : std::vector<double>{};
  const std::vector<double> weight =
      has_result(w) ? read_row(p.tensors[first_weight + norms_x(w)], 0) : std::vector<double>{};
  outputs.assign(static_cast<size_t>(has_result(w) + has_residual(w)), {});
  for (const int64_t row : rows) {
    std::vector<double> value = read_row(p.tensors[0], row);
    if (norms_x(w)) normalize_row(w, x_weight, value);
    if (has_residual(w)) {
      const std::vector<double> added = read_row(p.tensors[1], row);
      for (size_t i = 0; i < value.size(); ++i) value[i] += added[i];
      outputs.back().insert(outputs.back().end(), value.begin(), value.end());
    }
    if (!has_result(w)) continue;
    normalize_row(w, weight, value);
    outputs.front().insert(outputs.front().end(), value.begin(), value.end());
  }
}

bool fill(const Problem& p, size_t arg, uint64_t seed) {
  if (p.schema->args[arg].role != ArgRole::weight) return false;
  fill_normal(p.tensors[arg], 1 - p.workload->fields.get_double("weight_offset", 0), 0.1, seed);
  return true;
}

}  // namespace

Workload RmsNorm::workload() const {
  return {
      "rms_norm",
      dtype,
      threads,
      {{"n", n}, {"eps", eps}, {"residual", int64_t{residual}}, {"normed", normed}, {"weight_offset", weight_offset}}};
}

autotune::OpDef rms_norm() {
  autotune::OpDef op;
  op.name = "rms_norm";
  op.summary = "root-mean-square norm of each row, with residual add before or behind";
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
