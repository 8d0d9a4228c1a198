// kernels/rope.cpp -- see rope.h.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/rope.h"

#include <fmt/format.h>

#include <bit>
#include <cmath>
#include <numbers>

#include "jit/error.h"
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

/// Of generated problems: any position that f32 holds, and a table that scales.
constexpr int64_t kMaxFilledPosition = (int64_t{1} << 24) - 1;
constexpr double kFilledTheta = 10000, kFilledFactor = 1.25;

struct Shape {
  explicit Shape(const Workload& w)
      : heads(w.fields.get_int("heads")),
        kv_heads(w.fields.get_int("kv_heads")),
        head_dim(w.fields.get_int("head_dim")),
        rotary_dim(w.fields.get_int("rotary_dim")),
        interleaved(w.fields.get_string("style") == "interleaved"),
        inverse(w.fields.get_int("inverse") != 0),
        norm(w.fields.get_int("norm") != 0),
        eps(w.fields.get_double("eps", 0)),
        weight_offset(w.fields.get_double("weight_offset", 0)) {}
  int64_t pairs() const { return rotary_dim / 2; }
  int64_t rest() const { return head_dim - rotary_dim; }
  int64_t heads, kv_heads, head_dim, rotary_dim;
  bool interleaved, inverse, norm;
  double eps, weight_offset;
};

/// Places in the schema.
enum Arg { kQ, kK, kPositions, kTable, kNorm };

Workload normalize(const Workload& given) {
  WorkloadReader reader(given);
  reader.required("heads", 1, kMaxHeads);
  reader.required("kv_heads", 1, kMaxHeads);
  const int64_t head_dim = reader.required("head_dim", 2, 1024);
  const int64_t rotary_dim = reader.integer("rotary_dim", head_dim, 2, head_dim);
  if (rotary_dim % 2) reader.refuse("rotary_dim", "must be even: elements are rotated in pairs");
  reader.choice("style", {"half", "interleaved"});
  const bool inverse = reader.flag("inverse");
  const bool norm = reader.flag("norm");
  if (norm && inverse) reader.refuse("norm", "needs inverse = 0: the gradient of a norm is rms_norm_backward's");
  reader.number("eps", norm ? 1e-6 : 0, 0, norm ? 1 : 0);
  reader.number("weight_offset", 0, norm ? -1 : 0, norm ? 1 : 0);
  return reader.finish();
}

Schema schema(const Workload& w) {
  const Shape s(w);
  Schema schema;
  schema.args.push_back({"q", ArgRole::input, w.dtype, {"length", s.heads, s.head_dim}});
  schema.args.push_back({"k", ArgRole::input, w.dtype, {"length", s.kv_heads, s.head_dim}});
  schema.args.push_back({"positions", ArgRole::input, DType::i32, {"length"}});
  schema.args.push_back({"table", ArgRole::input, DType::i32, {kRopeTableRows, s.pairs()}});
  if (s.norm) schema.args.push_back({"q_norm", ArgRole::weight, w.dtype, {s.head_dim}});
  if (s.norm) schema.args.push_back({"k_norm", ArgRole::weight, w.dtype, {s.head_dim}});
  schema.args.push_back({"q_out", ArgRole::output, w.dtype, {"length", s.heads, s.head_dim}});
  schema.args.back().in_place = {"q"};
  schema.args.push_back({"k_out", ArgRole::output, w.dtype, {"length", s.kv_heads, s.head_dim}});
  schema.args.back().in_place = {"k"};
  return schema;
}

/// Cosines and sines [rows, pairs] of the rotations, times the table's factor.
struct Rotation {
  Var cosine, sine;
};

/// The product of a position with row 0 wraps around: what is left is the signed fraction of a turn. What row 0 leaves
/// out is less than 2^-33 of a turn, so that its product with a position is exact enough in f32.
Rotation rotation_of(KernelBuilder& b, const Shape& s, Var positions, Var table, Var row, int64_t rows) {
  const int64_t pairs = s.pairs();
  const auto repeated = [&](int64_t i) {
    return down(b, b.load(b.at(table, 0, i), {0}, {pairs}), rows, pairs);
  };
  Var position = across(b, b.load(positions, {row}, {rows}), rows, pairs);
  Var turns = repeated(0), left_out = b.bitcast(repeated(1), DType::f32), factor = b.bitcast(repeated(2), DType::f32);
  Var fraction = b.cast(position * turns, DType::f32), real_position = b.cast(position, DType::f32);
  Var angle = fraction * (2 * std::numbers::pi * 0x1p-32) + real_position * left_out;
  Var cosine = b.unary(ir::OpKind::cos, angle) * factor, sine = b.unary(ir::OpKind::sin, angle) * factor;
  return {cosine, s.inverse ? -sine : sine};
}

/// Columns [first, first + count) of rows of one head, in f32; `scale` [rows] and `weight` are of the norm.
struct Head {
  KernelBuilder& b;
  const Shape& s;
  Var from, row;
  int64_t rows;
  Var weight{}, scale{};

  Var load(int64_t first, int64_t count) {
    Var value = to_f32(b, b.load(from, {row, first}, {rows, count}));
    if (!s.norm) return value;
    Var gain = to_f32(b, b.load(weight, {first}, {count}));
    if (s.weight_offset != 0) gain = gain + s.weight_offset;
    return value * across(b, scale, rows, count) * down(b, gain, rows, count);
  }
  void measure(Var norm) {
    weight = norm;
    Var value = to_f32(b, b.load(from, {row, 0}, {rows, s.head_dim}));
    Var mean_square = b.sum(value * value, 1) * (1.0 / static_cast<double>(s.head_dim));
    scale = b.unary(ir::OpKind::rsqrt, mean_square + s.eps);
  }
};

/// Every head of `rows` rows of x, normed and rotated.
void rotate(KernelBuilder& b, const Shape& s, Var x, Var norm, Var out, int64_t heads, Var row, const Rotation& by) {
  const int64_t rows = by.cosine.type().shape[0], pairs = s.pairs();
  const DType dtype = x.type().dtype;
  b.for_each(0, heads, 1, [&](Var i) {
    Head head{b, s, b.at(x, 1, i), row, rows};
    Var to = b.at(out, 1, i);
    if (s.norm) head.measure(norm);
    if (s.interleaved) {
      auto [first, second] = b.split(head.load(0, s.rotary_dim));
      Var turned = b.join(first * by.cosine - second * by.sine, second * by.cosine + first * by.sine);
      b.store(to, {row, 0}, to_storage(b, turned, dtype));
    } else {
      Var first = head.load(0, pairs), second = head.load(pairs, pairs);
      b.store(to, {row, 0}, to_storage(b, first * by.cosine - second * by.sine, dtype));
      b.store(to, {row, pairs}, to_storage(b, second * by.cosine + first * by.sine, dtype));
    }
    if (s.rest() > 0) b.store(to, {row, s.rotary_dim}, to_storage(b, head.load(s.rotary_dim, s.rest()), dtype));
  });
}

void build(KernelBuilder& b, const Workload& w, const Config& config, const Target&) {
  const Shape s(w);
  Var q = b.view("q", w.dtype, {kDynamic, s.heads, s.head_dim});
  Var k = b.view("k", w.dtype, {kDynamic, s.kv_heads, s.head_dim});
  Var positions = b.view("positions", DType::i32, {kDynamic});
  Var table = b.view("table", DType::i32, {kRopeTableRows, s.pairs()}), q_norm, k_norm;
  if (s.norm) q_norm = b.view("q_norm", w.dtype, {s.head_dim});
  if (s.norm) k_norm = b.view("k_norm", w.dtype, {s.head_dim});
  Var q_out = b.view("q_out", w.dtype, {kDynamic, s.heads, s.head_dim});
  Var k_out = b.view("k_out", w.dtype, {kDynamic, s.kv_heads, s.head_dim});

  const int64_t rows = config.get_int("rows");
  Var row = b.program_id(0) * rows;
  const Rotation by = rotation_of(b, s, positions, table, row, rows);
  rotate(b, s, q, q_norm, q_out, s.heads, row, by);
  rotate(b, s, k, k_norm, k_out, s.kv_heads, row, by);
}

autotune::Cost cost(const Workload& w, std::span<const int64_t> symbols) {
  const Shape s(w);
  const double elements = static_cast<double>(symbols[0] * (s.heads + s.kv_heads) * s.head_dim);
  const double bytes = elements * static_cast<double>(dtype_bytes(w.dtype));
  return {(s.norm ? 7 : 3) * elements, bytes + 4 * static_cast<double>(symbols[0]), bytes};
}

/// What a column of the table says, in double.
struct Turn {
  Turn(const Tensor& table, int64_t pair)
      : per_position(static_cast<double>(word(table, 0, pair)) * 0x1p-32 +
                     std::bit_cast<float>(word(table, 1, pair)) / (2 * std::numbers::pi)),
        factor(std::bit_cast<float>(word(table, 2, pair))) {}
  double per_position, factor;

 private:
  static int32_t word(const Tensor& table, int64_t row, int64_t pair) {
    return static_cast<int32_t>(read_element(table, row * table.strides[0] + pair * table.strides[1]));
  }
};

/// Of row `row` of x, the heads' values; normed by the weight, where there is one.
std::vector<double> heads_of(const Shape& s, const Tensor& x, int64_t row, const Tensor* weight) {
  std::vector<double> values = read_row(x, row);
  if (!weight) return values;
  const std::vector<double> gain = read_row(*weight, 0);
  const size_t n = gain.size();
  for (size_t head = 0; head < values.size(); head += n) {
    double squares = 0;
    for (size_t i = 0; i < n; ++i) squares += values[head + i] * values[head + i];
    const double scale = 1 / std::sqrt(squares / static_cast<double>(n) + s.eps);
    for (size_t i = 0; i < n; ++i) values[head + i] *= scale * (s.weight_offset + gain[i]);
  }
  return values;
}

void rotate_row(const Shape& s, const Tensor& table, double position, std::vector<double>& values) {
  for (int64_t pair = 0; pair < s.pairs(); ++pair) {
    const Turn turn(table, pair);
    const double turns = position * turn.per_position;
    const double angle = (turns - std::round(turns)) * 2 * std::numbers::pi * (s.inverse ? -1 : 1);
    const double cosine = std::cos(angle) * turn.factor, sine = std::sin(angle) * turn.factor;
    for (size_t head = 0; head < values.size(); head += static_cast<size_t>(s.head_dim)) {
      double& first = values[head + static_cast<size_t>(s.interleaved ? 2 * pair : pair)];
      double& second = values[head + static_cast<size_t>(s.interleaved ? 2 * pair + 1 : pair + s.pairs())];
      const double a = first, b = second;
      first = a * cosine - b * sine;
      second = b * cosine + a * sine;
    }
  }
}

void reference(const Problem& p, std::span<const int64_t> rows, std::vector<std::vector<double>>& outputs) {
  const Shape s(*p.workload);
  outputs.assign(2, {});
  for (const int64_t row : rows)
    for (int i = 0; i < 2; ++i) {
      std::vector<double> values = heads_of(s, p.tensors[i], row, s.norm ? &p.tensors[kNorm + i] : nullptr);
      rotate_row(s, p.tensors[kTable], static_cast<double>(read_index(p.tensors[kPositions], row)), values);
      outputs[i].insert(outputs[i].end(), values.begin(), values.end());
    }
}

bool fill(const Problem& p, size_t arg, uint64_t seed) {
  const Shape s(*p.workload);
  if (arg == kPositions) fill_uniform_int(p.tensors[arg], 0, kMaxFilledPosition, seed);
  else if (arg == kTable) fill_rope_table(rope_turns(s.rotary_dim, kFilledTheta), kFilledFactor, p.tensors[arg]);
  else if (p.schema->args[arg].role == ArgRole::weight) fill_normal(p.tensors[arg], 1 - s.weight_offset, 0.1, seed);
  else return false;
  return true;
}

}  // namespace

std::vector<double> rope_turns(int64_t rotary_dim, double theta) {
  std::vector<double> turns(static_cast<size_t>(rotary_dim / 2));
  for (size_t i = 0; i < turns.size(); ++i)
    turns[i] =
        std::pow(theta, -2.0 * static_cast<double>(i) / static_cast<double>(rotary_dim)) / (2 * std::numbers::pi);
  return turns;
}

void fill_rope_table(std::span<const double> turns, double factor, const Tensor& table) {
  const auto pairs = static_cast<int64_t>(turns.size());
  if (table.dtype != DType::i32 || table.rank != 2 || table.sizes[0] != kRopeTableRows || table.sizes[1] != pairs)
    throw Error(ErrorCode::invalid_argument, fmt::format("rope table: must be [{}, {}] of i32", kRopeTableRows, pairs));
  const auto put = [&](int64_t row, int64_t pair, auto word) {
    static_cast<int32_t*>(table.data)[row * table.strides[0] + pair * table.strides[1]] = std::bit_cast<int32_t>(word);
  };
  for (int64_t i = 0; i < pairs; ++i) {
    const double turn = turns[static_cast<size_t>(i)], fraction = (turn - std::round(turn)) * 0x1p32;
    const double whole = std::round(fraction);  // 2^31 is half a turn, and wraps to -2^31, which is the same
    put(0, i, static_cast<uint32_t>(static_cast<int64_t>(whole)));
    put(1, i, static_cast<float>((fraction - whole) * 0x1p-32 * 2 * std::numbers::pi));
    put(2, i, static_cast<float>(factor));
  }
}

Workload Rope::workload() const {
  Workload w{"rope",
             dtype,
             threads,
             {{"heads", heads},
              {"kv_heads", kv_heads},
              {"head_dim", head_dim},
              {"rotary_dim", rotary_dim ? rotary_dim : head_dim},
              {"style", style},
              {"inverse", int64_t{inverse}},
              {"norm", int64_t{norm}}}};
  if (norm) w.fields.set("eps", eps), w.fields.set("weight_offset", weight_offset);
  return w;
}

autotune::OpDef rope() {
  autotune::OpDef op;
  op.name = "rope";
  op.version = 2;
  op.summary = "rotary position embedding of query and key heads, normed or not";
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
  // An angle of up to pi is off by 2 ulp, a result by that times an input of up to 5; a norm adds its sum.
  op.tolerance = [](const Workload& w, std::span<const int64_t>) {
    const Shape s(w);
    auto bound = tolerance(w.dtype, s.norm ? s.head_dim : 1);
    bound.absolute += 0x1p-21 * 5 * kFilledFactor;
    return bound;
  };
  return op;
}

}  // namespace seqtile::kernels
