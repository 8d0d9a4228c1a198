// kernels/rope.cpp -- see rope.h.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/rope.h"

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

/// Positions of generated problems: a rounding error of the frequency is multiplied by the position.
constexpr int64_t kMaxFilledPosition = 2047;

struct Shape {
  explicit Shape(const Workload& w)
      : heads(w.fields.get_int("heads")),
        kv_heads(w.fields.get_int("kv_heads")),
        head_dim(w.fields.get_int("head_dim")),
        rotary_dim(w.fields.get_int("rotary_dim")),
        interleaved(w.fields.get_string("style") == "interleaved"),
        inverse(w.fields.get_int("inverse") != 0),
        llama3(w.fields.get_string("scaling") == "llama3"),
        theta(w.fields.get_double("theta", 0)),
        factor(w.fields.get_double("factor", 1)),
        low(w.fields.get_double("low_freq_factor", 1)),
        high(w.fields.get_double("high_freq_factor", 4)),
        old_length(static_cast<double>(w.fields.get_int("original_max_position"))) {}
  int64_t heads, kv_heads, head_dim, rotary_dim;
  bool interleaved, inverse, llama3;
  double theta, factor, low, high, old_length;
};

Workload normalize(const Workload& given) {
  WorkloadReader reader(given);
  reader.required("heads", 1, kMaxHeads);
  reader.required("kv_heads", 1, kMaxHeads);
  const int64_t head_dim = reader.required("head_dim", 2, 1024);
  const int64_t rotary_dim = reader.integer("rotary_dim", head_dim, 2, head_dim);
  if (rotary_dim % 2) reader.refuse("rotary_dim", "must be even: elements are rotated in pairs");
  reader.number("theta", 10000, 1, 1e12);
  reader.choice("style", {"half", "interleaved"});
  reader.flag("inverse");
  reader.choice("scaling", {"none", "llama3"});
  reader.number("factor", 8, 1, 1e6);
  const double low = reader.number("low_freq_factor", 1, 1e-6, 1e6);
  const double high = reader.number("high_freq_factor", 4, 1e-6, 1e6);
  if (high <= low) reader.refuse("high_freq_factor", "must be above low_freq_factor");
  reader.integer("original_max_position", 8192, 1, int64_t{1} << 30);
  return reader.finish();
}

Schema schema(const Workload& w) {
  const Shape s(w);
  Schema schema;
  schema.args.push_back({"q", ArgRole::input, w.dtype, {"length", s.heads, s.head_dim}});
  schema.args.push_back({"k", ArgRole::input, w.dtype, {"length", s.kv_heads, s.head_dim}});
  schema.args.push_back({"positions", ArgRole::input, DType::i32, {"length"}});
  schema.args.push_back({"q_out", ArgRole::output, w.dtype, {"length", s.heads, s.head_dim}});
  schema.args.back().in_place = {"q"};
  schema.args.push_back({"k_out", ArgRole::output, w.dtype, {"length", s.kv_heads, s.head_dim}});
  schema.args.back().in_place = {"k"};
  return schema;
}

/// [pairs] rotation of each pair per position, in radians. Llama 3 leaves short wavelengths alone, divides the
/// frequency of long ones by `factor`, and blends between the two.
Var frequencies(KernelBuilder& b, const Shape& s) {
  const double step = -2 * std::log2(s.theta) / static_cast<double>(s.rotary_dim);
  Var frequency = b.unary(ir::OpKind::exp2, b.cast(b.iota(s.rotary_dim / 2), DType::f32) * step);
  if (!s.llama3) return frequency;
  Var turns = frequency * (s.old_length / (2 * std::numbers::pi));
  Var kept = b.min(b.max((turns - s.low) * (1 / (s.high - s.low)), 0.0), 1.0);
  return frequency * (kept * (1 - 1 / s.factor) + 1 / s.factor);
}

/// Rotates every head of `rows` rows of x by the angles' cosines and sines [rows, pairs].
void rotate(KernelBuilder& b, const Shape& s, Var x, Var out, int64_t heads, Var row, Var cosine, Var sine) {
  const int64_t rows = cosine.type().shape[0], pairs = s.rotary_dim / 2;
  const DType dtype = x.type().dtype;
  b.for_loop(0, heads, 1, {}, [&](Var head, std::vector<Var>) {
    Var from = b.at(x, 1, head), to = b.at(out, 1, head);
    if (s.interleaved) {
      auto [first, second] = b.split(to_f32(b, b.load(from, {row, 0}, {rows, s.rotary_dim})));
      Var turned = b.join(first * cosine - second * sine, second * cosine + first * sine);
      b.store(to, {row, 0}, to_storage(b, turned, dtype));
    } else {
      Var first = to_f32(b, b.load(from, {row, 0}, {rows, pairs}));
      Var second = to_f32(b, b.load(from, {row, pairs}, {rows, pairs}));
      b.store(to, {row, 0}, to_storage(b, first * cosine - second * sine, dtype));
      b.store(to, {row, pairs}, to_storage(b, second * cosine + first * sine, dtype));
    }
    const int64_t rest = s.head_dim - s.rotary_dim;
    if (rest > 0) b.store(to, {row, s.rotary_dim}, b.load(from, {row, s.rotary_dim}, {rows, rest}));
    return std::vector<Var>{};
  });
}

void build(KernelBuilder& b, const Workload& w, const Config& config, const Target&) {
  const Shape s(w);
  const int64_t rows = config.get_int("rows"), pairs = s.rotary_dim / 2;
  Var q = b.view("q", w.dtype, {kDynamic, s.heads, s.head_dim});
  Var k = b.view("k", w.dtype, {kDynamic, s.kv_heads, s.head_dim});
  Var positions = b.view("positions", DType::i32, {kDynamic});
  Var q_out = b.view("q_out", w.dtype, {kDynamic, s.heads, s.head_dim});
  Var k_out = b.view("k_out", w.dtype, {kDynamic, s.kv_heads, s.head_dim});

  Var row = b.program_id(0) * rows;
  Var position = b.cast(b.load(positions, {row}, {rows}), DType::f32);
  Var angle = across(b, position, rows, pairs) * down(b, frequencies(b, s), rows, pairs);
  Var cosine = b.unary(ir::OpKind::cos, angle), sine = b.unary(ir::OpKind::sin, angle);
  if (s.inverse) sine = -sine;
  rotate(b, s, q, q_out, s.heads, row, cosine, sine);
  rotate(b, s, k, k_out, s.kv_heads, row, cosine, sine);
}

autotune::Cost cost(const Workload& w, std::span<const int64_t> symbols) {
  const Shape s(w);
  const double elements = static_cast<double>(symbols[0] * (s.heads + s.kv_heads) * s.head_dim);
  const double bytes = elements * static_cast<double>(dtype_bytes(w.dtype));
  return {3 * elements, bytes + 4 * static_cast<double>(symbols[0]), bytes};
}

/// The same as frequencies(), written as Llama 3.1 states it: by wavelengths.
double frequency(const Shape& s, int64_t pair) {
  const double plain = std::pow(s.theta, -2.0 * static_cast<double>(pair) / static_cast<double>(s.rotary_dim));
  const double wavelength = 2 * std::numbers::pi / plain;
  if (!s.llama3 || wavelength < s.old_length / s.high) return plain;
  if (wavelength > s.old_length / s.low) return plain / s.factor;
  const double smooth = (s.old_length / wavelength - s.low) / (s.high - s.low);
  return (1 - smooth) * plain / s.factor + smooth * plain;
}

std::vector<double> rotated_row(const Shape& s, const Tensor& x, int64_t row, double position) {
  std::vector<double> values = read_row(x, row);
  const int64_t pairs = s.rotary_dim / 2;
  for (int64_t head = 0; head < x.sizes[1]; ++head)
    for (int64_t pair = 0; pair < pairs; ++pair) {
      double& first = values[head * s.head_dim + (s.interleaved ? 2 * pair : pair)];
      double& second = values[head * s.head_dim + (s.interleaved ? 2 * pair + 1 : pair + pairs)];
      const double angle = position * frequency(s, pair) * (s.inverse ? -1 : 1), a = first, b = second;
      first = a * std::cos(angle) - b * std::sin(angle);
      second = b * std::cos(angle) + a * std::sin(angle);
    }
  return values;
}

void reference(const Problem& p, std::span<const int64_t> rows, std::vector<std::vector<double>>& outputs) {
  const Shape s(*p.workload);
  outputs.assign(2, {});
  for (const int64_t row : rows)
    for (int i = 0; i < 2; ++i) {
      const double position = static_cast<double>(read_index(p.tensors[2], row));
      const std::vector<double> values = rotated_row(s, p.tensors[i], row, position);
      outputs[i].insert(outputs[i].end(), values.begin(), values.end());
    }
}

bool fill(const Problem& p, size_t arg, uint64_t seed) {
  if (arg != 2) return false;
  fill_uniform_int(p.tensors[2], 0, kMaxFilledPosition, seed);
  return true;
}

}  // namespace

Workload Rope::workload() const {
  return {"rope",
          dtype,
          threads,
          {{"heads", heads},
           {"kv_heads", kv_heads},
           {"head_dim", head_dim},
           {"rotary_dim", rotary_dim ? rotary_dim : head_dim},
           {"theta", theta},
           {"style", style},
           {"inverse", int64_t{inverse}},
           {"scaling", scaling},
           {"factor", factor},
           {"low_freq_factor", low_freq_factor},
           {"high_freq_factor", high_freq_factor},
           {"original_max_position", original_max_position}}};
}

autotune::OpDef rope() {
  autotune::OpDef op;
  op.name = "rope";
  op.summary = "rotary position embedding of query and key heads";
  op.normalize = normalize;
  op.schema = schema;
  const auto tile_columns = [](const Workload& w) {
    const Shape s(w);
    return s.rotary_dim * 2 + (s.heads + s.kv_heads) * s.head_dim;
  };
  define_row_kernel(op, tile_columns, cost);
  op.build = build;
  op.fill = fill;
  op.reference = reference;
  // An f32 frequency is off by about 2 ulp, the angle by that times the position, the result by that times the input.
  op.tolerance = [](const Workload& w, std::span<const int64_t>) {
    auto bound = tolerance(w.dtype, 1);
    bound.absolute += static_cast<double>(kMaxFilledPosition) * 0x1p-22 * 5;
    return bound;
  };
  return op;
}

}  // namespace seqtile::kernels
