// kernels/rms_norm_backward.cpp -- see rms_norm_backward.h.
// SPDX-License-Identifier: Apache-2.0
//
// The grid has `programs` programs whatever the length is; each takes an equal run of rows and leaves its part of
// dweight in a workspace. Parts are summed in their own order: groups of up to 16 by whoever arrives last in the group,
// the groups' sums by whoever arrives last of all. So the bits depend on the configuration only.
#include "kernels/rms_norm_backward.h"

#include <algorithm>
#include <cmath>

#include "kernels/rms_norm_grid.h"
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

enum Arg { kDy, kX };  // weight is the third last

bool has_residual(const Workload& w) { return w.fields.get_int("residual") != 0; }

Workload normalize(const Workload& given) {
  WorkloadReader reader(given);
  reader.required("n", 1, kMaxFeatures);
  reader.number("eps", 1e-5, 1e-12, 1);  // above 0, so that rows beyond the end, which are zeros, have a finite scale
  reader.flag("residual");
  reader.number("weight_offset", 0, -1, 1);
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
  schema.args.push_back({"dweight", ArgRole::output, DType::f32, {1, n}});
  return schema;
}

/// The kernel's parameters, in schema order, then the workspaces.
struct Operands {
  Operands(KernelBuilder& b, const Workload& w, const Config& config);
  Var dy, x, residual, weight, dx, dweight;
  Var parts, group_sums, arrived;  ///< [programs][n], [groups][n]; a counter for each group and one for all
};

Operands::Operands(KernelBuilder& b, const Workload& w, const Config& config) {
  const int64_t n = w.fields.get_int("n");
  dy = b.view("dy", w.dtype, {kDynamic, n});
  x = b.view("x", w.dtype, {kDynamic, n});
  if (has_residual(w)) residual = b.view("residual", w.dtype, {kDynamic, n});
  weight = b.view("weight", w.dtype, {n});
  dx = b.view("dx", w.dtype, {kDynamic, n});
  dweight = b.view("dweight", DType::f32, {1, n});
  parts = b.view("parts", DType::f32, {kDynamic});
  if (rms_norm_grid::num_groups(config) > 1) group_sums = b.view("group_sums", DType::f32, {kDynamic});
  arrived = b.view("arrived", DType::i32, {kDynamic});
}

/// Rows [row, row + rows) in f32. g: dy times the norm's gain.
struct Rows {
  Rows(KernelBuilder& b, const Workload& w, const Operands& v, Var row, int64_t rows);
  /// What they add to dweight, [rows, n].
  Var terms(KernelBuilder& b) const { return dy * x * across(b, scale, x.type().shape[0], x.type().shape[1]); }
  void store_dx(KernelBuilder& b, const Operands& v) const;
  Var row, dy, x, g, scale;
};

Rows::Rows(KernelBuilder& b, const Workload& w, const Operands& v, Var row, int64_t rows) : row(row) {
  const int64_t n = w.fields.get_int("n");
  dy = to_f32(b, b.load(v.dy, {row, 0}, {rows, n}));
  x = to_f32(b, b.load(v.x, {row, 0}, {rows, n}));
  Var gain = to_f32(b, b.load(v.weight, {0}, {n}));
  if (const double offset = w.fields.get_double("weight_offset", 0); offset != 0) gain = gain + offset;
  g = dy * down(b, gain, rows, n);
  Var mean_square = b.sum(x * x, 1) * (1.0 / static_cast<double>(n));
  scale = b.unary(ir::OpKind::rsqrt, mean_square + w.fields.get_double("eps", 0));
}

void Rows::store_dx(KernelBuilder& b, const Operands& v) const {
  const int64_t rows = x.type().shape[0], n = x.type().shape[1];
  Var pull = b.sum(g * x, 1) * (1.0 / static_cast<double>(n)) * scale * scale;
  Var dx = (g - x * across(b, pull, rows, n)) * across(b, scale, rows, n);
  if (v.residual.value()) dx = dx + to_f32(b, b.load(v.residual, {row, 0}, {rows, n}));
  b.store(v.dx, {row, 0}, to_storage(b, dx, v.dx.type().dtype));
}

/// The sum of `count` runs of n values that lie one after the other, in their order.
Var sum_of_runs(KernelBuilder& b, Var view, Operand first, int64_t count, int64_t n) {
  return b.for_loop(0, count, 1, {b.full({n}, 0.0)}, [&](Var i, std::vector<Var> sums) {
    return std::vector{sums[0] + b.load(view, {(i + first) * n}, {n})};
  })[0];
}

/// Runs `body` in the program that is the last of `count` to arrive at `counter`, which is 0 again afterwards.
void when_last(KernelBuilder& b, Var arrived, Operand counter, int64_t count, const std::function<void()>& body) {
  Var before_me = b.atomic("add", arrived, {counter}, 1);
  b.when(b.compare(Compare::eq, before_me, count - 1), [&] {
    b.store_scalar(arrived, {counter}, 0);
    body();
  });
}

/// Adds up the parts of dweight, of which this program has written its own.
void merge(KernelBuilder& b, const Operands& v, const Config& config, int64_t n) {
  const int64_t groups = rms_norm_grid::num_groups(config), members = rms_norm_grid::members(config);
  Var group = b.program_id(0) / members;
  when_last(b, v.arrived, group, members, [&] {
    Var sum = sum_of_runs(b, v.parts, group * members, members, n);
    if (groups == 1) return b.store(v.dweight, {0, 0}, b.expand(sum, 0));
    b.store(v.group_sums, {group * n}, sum);
    when_last(b, v.arrived, groups, groups, [&] {
      b.store(v.dweight, {0, 0}, b.expand(sum_of_runs(b, v.group_sums, 0, groups, n), 0));
    });
  });
}

void build(KernelBuilder& b, const Workload& w, const Config& config, const Target& target) {
  const int64_t n = w.fields.get_int("n"), rows = config.get_int("rows"), programs = config.get_int("programs");
  const Operands v(b, w, config);
  Var program = b.program_id(0), length = b.size(v.x, 0);
  Var share = b.cdiv(b.cdiv(length, programs), rows) * rows;
  Var first = program * share, end = b.min(length, first + share), part = program * n;
  // dy and x are read for the sums first: dx may be written over them.
  if (target.is_gpu()) {  // sums stay in registers
    Var sums = b.for_loop(first, end, rows, {b.full({rows, n}, 0.0)}, [&](Var row, std::vector<Var> sums) {
      const Rows tile(b, w, v, row, rows);
      Var next = sums[0] + tile.terms(b);
      tile.store_dx(b, v);
      return std::vector{next};
    })[0];
    b.store(v.parts, {part}, b.sum(sums, 0));
  } else {  // sums stay in the caches
    b.store(v.parts, {part}, b.full({n}, 0.0));
    b.for_each(first, end, rows, [&](Var row) {
      const Rows tile(b, w, v, row, rows);
      b.store_add(v.parts, {part}, b.sum(tile.terms(b), 0));
      tile.store_dx(b, v);
    });
  }
  merge(b, v, config, n);
}

autotune::Cost cost(const Workload& w, std::span<const int64_t> symbols) {
  const double n = static_cast<double>(w.fields.get_int("n")), elements = static_cast<double>(symbols[0]) * n;
  const double bytes = elements * static_cast<double>(dtype_bytes(w.dtype));
  return {12 * elements, bytes * (has_residual(w) ? 3 : 2), bytes + 4 * n};
}

/// Columns of a row: gradient of x, and terms of the gradient of the weight.
struct RowGradients {
  std::vector<double> dx, terms;
};

RowGradients row_gradients(const Problem& p, int64_t row) {
  const auto& fields = p.workload->fields;
  const std::vector<double> dy = read_row(p.tensors[kDy], row), x = read_row(p.tensors[kX], row);
  const std::vector<double> weight = read_row(p.tensors[p.tensors.size() - 3], 0);
  const double n = static_cast<double>(x.size());
  double squares = 0, products = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    squares += x[i] * x[i];
    products += dy[i] * (fields.get_double("weight_offset", 0) + weight[i]) * x[i];
  }
  const double scale = 1 / std::sqrt(squares / n + fields.get_double("eps", 0));
  RowGradients result;
  for (size_t i = 0; i < x.size(); ++i) {
    const double g = dy[i] * (fields.get_double("weight_offset", 0) + weight[i]);
    result.dx.push_back(scale * (g - x[i] * scale * scale * products / n));
    result.terms.push_back(dy[i] * x[i] * scale);
  }
  return result;
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
  op.build = build;
  op.cost = cost;
  op.fill = fill;
  op.reference = reference;
  op.tolerance = gradient_tolerance;
  return op;
}

}  // namespace seqtile::kernels
