// kernels/linear/linear_wgrad.cpp -- see linear_wgrad.h.
// SPDX-License-Identifier: Apache-2.0
//
// One program sums a block of dw over all rows, so that nothing is added across programs.
#include "kernels/linear/linear_wgrad.h"

#include <algorithm>
#include <cmath>

#include "jit/base/cdiv.h"
#include "kernels/linear/linear_wgrad_tile.h"
#include "kernels/op/row_kernel.h"
#include "kernels/op/tensor_values.h"
#include "kernels/op/tolerance.h"
#include "kernels/op/workload_reader.h"

namespace seqtile::kernels {

using autotune::ArgRole;
using autotune::Config;
using autotune::ConfigSpace;
using autotune::GpuSample;
using autotune::GpuWork;
using autotune::Problem;
using autotune::Schema;
using autotune::SizeExpr;
using autotune::Workload;
using linear_wgrad_op::Gradient;

namespace {

enum Arg { kDy, kX, kBefore };  // dw is the last

Gradient gradient_of(const Workload& w) {
  return {w.fields.get_int("n"), w.fields.get_int("k"), w.fields.get_int("accumulate") != 0, w.dtype,
          w.fields.get_string("gradient") == "f32" ? DType::f32 : w.dtype};
}

Workload normalize(const Workload& given) {
  WorkloadReader reader(given);
  reader.required("n", 1, kMaxFeatures);
  reader.required("k", 1, kMaxFeatures);
  reader.flag("accumulate");
  reader.choice("gradient", {"operand", "f32"});
  return reader.finish();
}

Schema schema(const Workload& w) {
  const Gradient s = gradient_of(w);
  Schema schema;
  schema.args.push_back({"dy", ArgRole::input, w.dtype, {"length", s.n}});
  schema.args.push_back({"x", ArgRole::input, w.dtype, {"length", s.k}});
  if (s.accumulate) schema.args.push_back({"before", ArgRole::input, s.dw_dtype, {s.n, s.k}});
  schema.args.push_back({"dw", ArgRole::output, s.dw_dtype, {s.n, s.k}});
  if (s.accumulate) schema.args.back().in_place = {"before"};
  return schema;
}

Config default_config(const Workload& w, int64_t length, const Target& target) {
  const Gradient gradient = gradient_of(w);
  const std::vector<linear_op::Tile> tiles = linear_wgrad_op::candidates(gradient, w.threads, length, target);
  const auto predict = [&](const linear_op::Tile& tile) {
    return linear_wgrad_op::predict_us(gradient, tile, w.threads, length, target);
  };
  return std::ranges::min(tiles, {}, predict).config();
}

void build(KernelBuilder& b, const Workload& w, const Config& config, const Target& target) {
  const Gradient s = gradient_of(w);
  const linear_op::Tile t = linear_op::Tile::from(config);
  Var dy = b.view("dy", w.dtype, {kDynamic, s.n}), x = b.view("x", w.dtype, {kDynamic, s.k}), before;
  if (s.accumulate) before = b.view("before", s.dw_dtype, {s.n, s.k});
  Var dw = b.view("dw", s.dw_dtype, {s.n, s.k});

  Var row = b.program_id(0) * t.block_m, column = b.program_id(1) * t.block_n;
  const auto there = [&] { return to_f32(b, b.load(before, {row, column}, {t.block_m, t.block_n})); };
  // A GPU's registers do not hold the sums beside what is there: they start from it.
  const bool starts_from_before = s.accumulate && target.is_gpu();
  Var start = starts_from_before ? there() : b.full({t.block_m, t.block_n}, 0.0);
  Var sum = linear_wgrad_op::add_products(b, t, dy, x, row, column, start);
  if (s.accumulate && !starts_from_before) sum = sum + there();
  b.store(dw, {row, column}, to_storage(b, sum, s.dw_dtype));
}

std::array<SizeExpr, 3> grid(const Workload& w, const Config& config) {
  const Gradient s = gradient_of(w);
  const linear_op::Tile t = linear_op::Tile::from(config);
  return {SizeExpr{cdiv(s.n, t.block_m)}, SizeExpr{cdiv(s.k, t.block_n)}, SizeExpr{1}};
}

autotune::Cost cost(const Workload& w, std::span<const int64_t> symbols) {
  const Gradient s = gradient_of(w);
  const double rows = static_cast<double>(symbols[0]), n = static_cast<double>(s.n), k = static_cast<double>(s.k);
  const double bytes = static_cast<double>(dtype_bytes(w.dtype)),
               dw_bytes = static_cast<double>(dtype_bytes(s.dw_dtype));
  return {2 * rows * n * k, rows * (n + k) * bytes + (s.accumulate ? n * k * dw_bytes : 0), n * k * dw_bytes};
}

GpuWork gpu_work(const Workload& w, const Config& config, int64_t length, const Target& target) {
  const Gradient s = gradient_of(w);
  GpuWork work = linear_wgrad_op::product(s, length).gpu_work(linear_op::Tile::from(config), s.n, target);
  // What has to be a multiple of 16 bytes are rows of dy and x, not the sum.
  work.uses_wgmma =
      autotune::may_use_wgmma(target, w.dtype, config.get_int("block_m"), config.get_int("num_warps", 4)) &&
      s.n % 8 == 0 && s.k % 8 == 0;
  return work;
}

/// One program, at two lengths, the last turn as full as that of the whole sum.
std::vector<GpuSample> gpu_samples(const Workload& w, const Config& c, int64_t length) {
  const int64_t block_k = c.get_int("block_k"), turns = cdiv(length, block_k);
  const int64_t few = c.get_int("num_stages", 1) + 1, more = few + 2;
  Workload small = w;
  small.fields.set("n", std::min(w.fields.get_int("n"), c.get_int("block_m")));
  small.fields.set("k", std::min(w.fields.get_int("k"), c.get_int("block_n")));
  if (turns <= more) return {{small, length, 1}};
  const auto at = [&](int64_t count) { return length - (turns - count) * block_k; };
  const double share = static_cast<double>(turns - few) / static_cast<double>(more - few);
  return {{small, at(few), 1 - share}, {small, at(more), share}};
}

/// Gradients get smaller with the number of rows that a loss averages: sums are then of order 1.
bool fill(const Problem& p, size_t arg, uint64_t seed) {
  if (arg != kDy) return false;
  fill_normal(p.tensors[arg], 0, 1 / std::sqrt(static_cast<double>(p.symbols[0])), seed);
  return true;
}

void reference(const Problem& p, std::span<const int64_t> rows, std::vector<std::vector<double>>& outputs) {
  const Gradient s = gradient_of(*p.workload);
  const Tensor& dy = p.tensors[kDy];
  outputs.assign(1, std::vector<double>(rows.size() * static_cast<size_t>(s.k), 0.0));
  for (int64_t token = 0; token < dy.sizes[0]; ++token) {
    const std::vector<double> x = read_row(p.tensors[kX], token);
    for (size_t r = 0; r < rows.size(); ++r) {
      const double gradient = read_element(dy, token * dy.strides[0] + rows[r] * dy.strides[1]);
      double* sums = outputs[0].data() + r * x.size();
      for (size_t i = 0; i < x.size(); ++i) sums[i] += gradient * x[i];
    }
  }
  for (size_t r = 0; s.accumulate && r < rows.size(); ++r) {
    const std::vector<double> before = read_row(p.tensors[kBefore], rows[r]);
    for (size_t i = 0; i < before.size(); ++i) outputs[0][r * before.size() + i] += before[i];
  }
}

}  // namespace

Workload LinearWgrad::workload() const {
  return {"linear_wgrad",
          dtype,
          threads,
          {{"n", n},
           {"k", k},
           {"accumulate", int64_t{accumulate}},
           {"gradient", std::string(f32_gradient ? "f32" : "operand")}}};
}

autotune::OpDef linear_wgrad() {
  autotune::OpDef op;
  op.version = 2;
  op.name = "linear_wgrad";
  op.summary = "dy^T x, the gradient of a linear layer's weight, added to what is there if wanted";
  op.normalize = normalize;
  op.schema = schema;
  op.config_space = [](const Workload& w, int64_t length, const Target& target) {
    ConfigSpace space;
    for (const linear_op::Tile& tile : linear_wgrad_op::candidates(gradient_of(w), w.threads, length, target))
      space.add(tile.config());
    return space;
  };
  op.default_config = default_config;
  op.build = build;
  op.grid = grid;
  op.cost = cost;
  op.predict_us = [](const Workload& w, const Config& config, int64_t length, const Target& target) {
    return linear_wgrad_op::predict_us(gradient_of(w), linear_op::Tile::from(config), w.threads, length, target);
  };
  op.gpu_work = gpu_work;
  op.gpu_samples = gpu_samples;
  op.fill = fill;
  op.reference = reference;
  op.tolerance = [](const Workload& w, std::span<const int64_t> symbols) {
    return tolerance(gradient_of(w).dw_dtype, symbols[0]);
  };
  return op;
}

}  // namespace seqtile::kernels
