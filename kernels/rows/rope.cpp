// kernels/rows/rope.cpp -- see seqtile/ops/rows.h.
// SPDX-License-Identifier: Apache-2.0
#include "seqtile/ops/rows.h"

#include <fmt/format.h>

#include <bit>
#include <cmath>
#include <numbers>

#include "seqtile/error.h"
#include "seqtile/kernel.h"

namespace seqtile::kernels {

using autotune::Problem;

namespace {

/// Of generated problems: any position that f32 holds, and a table that scales.
constexpr int64_t kMaxFilledPosition = (int64_t{1} << 24) - 1;
constexpr double kFilledTheta = 10000, kFilledFactor = 1.25;

constexpr std::array<std::string_view, 2> kStyleNames = {"half", "interleaved"};

/// Cosines and sines [rows, pairs] of the rotations, times the table's factor.
struct Rotation {
  Var cosine, sine;
};

/// The product of a position with row 0 wraps around: what is left is the signed fraction of a turn. What row 0 leaves
/// out is less than 2^-33 of a turn, so that its product with a position is exact enough in f32.
Rotation rotation_of(KernelBuilder& b, const Rope& s, Var positions, Var table, Var row, int64_t rows) {
  const int64_t pairs = s.pairs();
  const auto repeated = [&](int64_t i) { return down(b, b.load(b.at(table, 0, i), {0}, {pairs}), rows, pairs); };
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
  const Rope& s;
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
void rotate(KernelBuilder& b, const Rope& s, Var x, Var norm, Var out, int64_t heads, Var row, const Rotation& by) {
  const int64_t rows = by.cosine.type().shape[0], pairs = s.pairs();
  const DType dtype = x.type().dtype;
  b.for_each(0, heads, 1, [&](Var i) {
    Head head{b, s, b.at(x, 1, i), row, rows};
    Var to = b.at(out, 1, i);
    if (s.norm) head.measure(norm);
    if (s.style == Rope::Style::interleaved) {
      auto [first, second] = b.split(head.load(0, s.rotary_dim));
      Var turned = b.join(first * by.cosine - second * by.sine, second * by.cosine + first * by.sine);
      b.store(to, {row, 0}, to_storage(b, turned, dtype));
    } else {
      Var first = head.load(0, pairs), second = head.load(pairs, pairs);
      b.store(to, {row, 0}, to_storage(b, first * by.cosine - second * by.sine, dtype));
      b.store(to, {row, pairs}, to_storage(b, second * by.cosine + first * by.sine, dtype));
    }
    if (s.head_dim - s.rotary_dim > 0)
      b.store(to, {row, s.rotary_dim}, to_storage(b, head.load(s.rotary_dim, s.head_dim - s.rotary_dim), dtype));
  });
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
std::vector<double> heads_of(const Rope& s, const Tensor& x, int64_t row, const Tensor* weight) {
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

void rotate_row(const Rope& s, const Tensor& table, double position, std::vector<double>& values) {
  for (int64_t pair = 0; pair < s.pairs(); ++pair) {
    const Turn turn(table, pair);
    const double turns = position * turn.per_position;
    const double angle = (turns - std::round(turns)) * 2 * std::numbers::pi * (s.inverse ? -1 : 1);
    const double cosine = std::cos(angle) * turn.factor, sine = std::sin(angle) * turn.factor;
    for (size_t head = 0; head < values.size(); head += static_cast<size_t>(s.head_dim)) {
      double& first = values[head + static_cast<size_t>(s.style == Rope::Style::interleaved ? 2 * pair : pair)];
      double& second =
          values[head + static_cast<size_t>(s.style == Rope::Style::interleaved ? 2 * pair + 1 : pair + s.pairs())];
      const double a = first, b = second;
      first = a * cosine - b * sine;
      second = b * cosine + a * sine;
    }
  }
}

/// Positions that f32 holds, and a table that scales.
bool fill_rope(const Problem& p, size_t arg, uint64_t seed) {
  const std::string& name = p.schema->args[arg].name;
  if (name == "positions") fill_uniform_int(p.tensors[arg], 0, kMaxFilledPosition, seed);
  else if (name == "table")
    fill_rope_table(rope_turns(op_of<Rope>(*p.workload).rotary_dim, kFilledTheta), kFilledFactor, p.tensors[arg]);
  else return false;
  return true;
}

}  // namespace

void Rope::fields(FieldVisitor& v) {
  v.integer("heads", heads, 1, kMaxHeads);
  v.integer("kv_heads", kv_heads, 1, kMaxHeads);
  v.integer("head_dim", head_dim, 2, 1024);
  if (rotary_dim == 0) rotary_dim = head_dim;
  v.integer("rotary_dim", rotary_dim, 2, head_dim);
  if (rotary_dim % 2) v.refuse("rotary_dim", "must be even: elements are rotated in pairs");
  v.choice("style", style, kStyleNames);
  v.flag("inverse", inverse);
  v.flag("norm", norm);
  if (norm && inverse) v.refuse("norm", "needs inverse = 0: the gradient of a norm is rms_norm_backward's");
  if (!norm) eps = weight_offset = 0;
  v.number("eps", eps, 0, norm ? 1 : 0);
  v.number("weight_offset", weight_offset, norm ? -1 : 0, norm ? 1 : 0);
}

void Rope::build(KernelBuilder& b, const Tensors<Var>& v, int64_t rows) const {
  Var row = b.program_id(0) * rows;
  const Rotation by = rotation_of(b, *this, v.positions, v.table, row, rows);
  rotate(b, *this, v.q, v.q_norm, v.q_out, heads, row, by);
  rotate(b, *this, v.k, v.k_norm, v.k_out, kv_heads, row, by);
}

void Rope::reference(const Tensors<Tensor>& t, int64_t row, Tensors<std::vector<double>>& out) const {
  const auto position = static_cast<double>(read_index(t.positions, row));
  const auto add = [&](const Tensor& x, const Tensor& weight, std::vector<double>& to) {
    std::vector<double> values = heads_of(*this, x, row, norm ? &weight : nullptr);
    rotate_row(*this, t.table, position, values);
    to.insert(to.end(), values.begin(), values.end());
  };
  add(t.q, t.q_norm, out.q_out);
  add(t.k, t.k_norm, out.k_out);
}

/// An angle of up to pi is off by 2 ulp, a result by that times an input of up to 5; a norm adds its sum.
autotune::OpDef::Tolerance Rope::tolerance() const {
  auto bound = kernels::tolerance(dtype, norm ? head_dim : 1);
  bound.absolute += 0x1p-21 * 5 * kFilledFactor;
  return bound;
}

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

autotune::OpDef rope() {
  autotune::OpDef op = row_kernel<Rope>("rotary position embedding of query and key heads, normed or not", 2);
  op.fill = [declared = op.fill](const Problem& p, size_t arg, uint64_t seed) {
    return fill_rope(p, arg, seed) || declared(p, arg, seed);
  };
  return op;
}

}  // namespace seqtile::kernels
