// kernels/linear/linear.cpp -- see linear.h.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/linear/linear.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "jit/base/error.h"
#include "kernels/linear/linear_tile.h"
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

namespace linear_op {

void read_fields(WorkloadReader& reader) {
  reader.required("n", 1, kMaxFeatures);
  reader.required("k", 1, kMaxFeatures);
  const int64_t n2 = reader.integer("n2", 0, 0, kMaxFeatures), n3 = reader.integer("n3", 0, 0, kMaxFeatures);
  if (n3 && !n2) reader.refuse("n3", "needs n2: weights are numbered without gaps");
  reader.flag("bias");
  reader.choice("activation", {"none", "silu", "gelu", "gelu_tanh"});
  if (reader.flag("gated") && n2) reader.refuse("gated", "needs n2 = 0: both weights of a gated pair have n columns");
  if (reader.flag("residual") && n2) reader.refuse("residual", "needs n2 = 0: a residual belongs to a single output");
  if (reader.given().dtype == DType::f32) reader.choice("precision", {"f32", "tf32"});
  else if (reader.given().fields.contains("precision")) reader.refuse("precision", "needs dtype f32");
  constexpr double kMost = 1e6;
  if (reader.late_number("scale", 1, -kMost, kMost) == 0) reader.refuse("scale", "must not be 0");
  reader.late_number("soft_cap", 0, 0, kMost);
  const bool packed = reader.choice("weight_layout", {"plain", "packed", "transposed"}) == "packed";
  reader.integer("panel", packed ? 32 : 0, packed ? 4 : 0, packed ? 256 : 0);
}

Shape::Shape(const Workload& w)
    : n{w.fields.get_int("n")},
      k(w.fields.get_int("k")),
      bias(w.fields.get_int("bias") != 0),
      gated(w.fields.get_int("gated") != 0),
      residual(w.fields.get_int("residual") != 0),
      packed(w.fields.get_string("weight_layout") == "packed"),
      transposed(w.fields.get_string("weight_layout") == "transposed"),
      panel(w.fields.get_int("panel")),
      activation(parse_activation(w.fields.get_string("activation"))),
      scale(w.fields.get_double("scale", 1)),
      soft_cap(w.fields.get_double("soft_cap", 0)),
      tf32(w.fields.get_string("precision", "f32") == "tf32"),
      dtype(w.dtype),
      result(w.dtype) {
  for (const char* field : {"n2", "n3"})
    if (const int64_t columns = w.fields.get_int(field)) n.push_back(columns);
}

Shape Shape::transposed_product(DType dtype, int64_t n, int64_t k, bool residual) {
  return Shape({"linear",
                dtype,
                1,
                {{"n", n},
                 {"n2", int64_t{0}},
                 {"n3", int64_t{0}},
                 {"k", k},
                 {"bias", int64_t{0}},
                 {"activation", std::string("none")},
                 {"gated", int64_t{0}},
                 {"residual", int64_t{residual}},
                 {"weight_layout", std::string("transposed")},
                 {"panel", int64_t{0}}}});
}

namespace {

Workload normalize(const Workload& given) {
  WorkloadReader reader(given);
  linear_op::read_fields(reader);
  return reader.finish();
}

Schema schema(const Workload& w) {
  const Shape s(w);
  Schema schema;
  const auto add = [&](std::string name, ArgRole role, std::vector<autotune::Dim> dims, bool dense = false) {
    schema.args.push_back({std::move(name), role, w.dtype, std::move(dims), 0, dense});
  };
  add("x", ArgRole::input, {"length", s.k});
  for (int i = 0; i < s.num_weights(); ++i) {
    const int64_t n = s.weight_columns(i);
    if (s.packed) add(numbered("w", i), ArgRole::weight, {(n + s.panel - 1) / s.panel, s.k, s.panel}, true);
    else if (s.transposed) add(numbered("w", i), ArgRole::weight, {s.k, n});
    else add(numbered("w", i), ArgRole::weight, {n, s.k});
  }
  for (int i = 0; s.bias && i < s.num_weights(); ++i) add(numbered("bias", i), ArgRole::weight, {s.weight_columns(i)});
  if (s.residual) add("residual", ArgRole::input, {"length", s.n[0]});
  for (size_t i = 0; i < s.n.size(); ++i) add(numbered("y", static_cast<int>(i)), ArgRole::output, {"length", s.n[i]});
  const size_t first_y = schema.args.size() - s.n.size();
  if (s.residual) schema.args[first_y].in_place = {"residual"};
  return schema;
}

/// One program: a block of rows of x against a block of columns of one output.
void build(KernelBuilder& b, const Workload& workload, const Config& config, const Target&) {
  const Shape s(workload);
  const Tile t = Tile::from(config);
  Operands v(b, s);
  Var row = b.program_id(0) * t.block_m;
  Var column = v.choose(b, s, b.program_id(1), t.block_n);
  store_result(b, s, v, row, column, multiply(b, s, t, v, row, column));
}

std::array<SizeExpr, 3> grid(const Workload& w, const Config& config) {
  const Tile t = Tile::from(config);
  return {SizeExpr{1, {{0, t.block_m}}}, SizeExpr{column_blocks(Shape(w), t.block_n)}, SizeExpr{1}};
}

autotune::Cost cost(const Workload& w, std::span<const int64_t> symbols) {
  const Shape s(w);
  double columns = 0;
  for (const int64_t n : s.n) columns += static_cast<double>(n);
  const double rows = static_cast<double>(symbols[0]), k = static_cast<double>(s.k), weights = s.weights_per_loop();
  const double bytes = static_cast<double>(dtype_bytes(w.dtype));
  return {2 * rows * columns * weights * k,
          (rows * k + weights * columns * (k + s.bias) + (s.residual ? rows * columns : 0)) * bytes,
          rows * columns * bytes};
}

/// Weights are random / sqrt(k) also where packing hides k behind another dimension; padding stays zero.
bool fill(const Problem& p, size_t arg, uint64_t seed) {
  const Shape s(*p.workload);
  const Tensor& tensor = p.tensors[arg];
  if (!s.packed || tensor.rank != 3) return false;
  fill_normal(tensor, 0, 1 / std::sqrt(static_cast<double>(s.k)), seed);
  const int64_t n = s.weight_columns(static_cast<int>(arg) - 1);
  for (int64_t column = n; column < tensor.sizes[0] * s.panel; ++column)
    for (int64_t kk = 0; kk < s.k; ++kk)
      write_element(tensor, tensor.strides[0] * (column / s.panel) + tensor.strides[1] * kk + column % s.panel, 0);
  return true;
}

}  // namespace
}  // namespace linear_op

Workload Linear::workload() const {
  const int64_t columns = packed ? (panel ? panel : default_panel(host_target())) : 0;
  Workload w{"linear",
             dtype,
             threads,
             {{"n", n},
              {"n2", n2},
              {"n3", n3},
              {"k", k},
              {"bias", int64_t{bias}},
              {"activation", std::string(activation_name(activation))},
              {"gated", int64_t{gated}},
              {"residual", int64_t{residual}},
              {"weight_layout", std::string(packed ? "packed" : "plain")},
              {"panel", columns}}};
  if (tf32) w.fields.set("precision", std::string("tf32"));
  if (scale != 1) w.fields.set("scale", scale);
  if (soft_cap != 0) w.fields.set("soft_cap", soft_cap);
  return w;
}

autotune::OpDef linear() {
  using namespace linear_op;
  autotune::OpDef op;
  op.name = "linear";
  op.summary = "x w^T with bias, activation, gate, scale, soft cap or residual; one to three weights";
  op.normalize = normalize;
  op.schema = schema;
  op.config_space = [](const Workload& w, int64_t length, const Target& target) {
    autotune::ConfigSpace space;
    for (const Tile& tile : candidates(Shape(w), w.threads, length, target)) space.add(tile.config());
    return space;
  };
  op.default_config = [](const Workload& w, int64_t length, const Target& target) {
    const Shape s(w);
    const std::vector<Tile> tiles = candidates(s, w.threads, length, target);
    if (tiles.empty())
      throw Error(ErrorCode::unsupported,
                  fmt::format("linear: panel = {} does not fit {}; take {} (default_panel) or another multiple of {}, "
                              "up to {}",
                              s.panel, target.name, default_panel(target), target.lanes_f32(), 4 * target.lanes_f32()));
    return std::ranges::min(tiles, {},
                            [&](const Tile& tile) { return linear_op::predict_us(s, tile, w.threads, length, target); })
        .config();
  };
  op.build = linear_op::build;
  op.grid = linear_op::grid;
  op.cost = linear_op::cost;
  op.predict_us = [](const Workload& w, const Config& config, int64_t length, const Target& target) {
    return linear_op::predict_us(Shape(w), Tile::from(config), w.threads, length, target);
  };
  op.gpu_work = [](const Workload& w, const Config& config, int64_t length, const Target& target) {
    return linear_op::gpu_work(Shape(w), config, length, target);
  };
  op.gpu_samples = linear_op::gpu_samples;
  op.fill = linear_op::fill;
  op.reference = linear_op::reference;
  op.tolerance = [](const Workload& w, std::span<const int64_t>) {
    auto allowed = tolerance(w.dtype, w.fields.get_int("k"));
    if (Shape(w).tf32) allowed.absolute += kTf32Error;
    allowed.absolute *= std::max(1.0, std::abs(Shape(w).scale));
    return allowed;
  };
  return op;
}

}  // namespace seqtile::kernels
