// jit/ir/builder_arithmetic.cpp -- the kernel builder: arithmetic, compositions, reductions, dot, synchronisation.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <numbers>
#include <optional>

#include "jit/ir/infer.h"
#include "jit/ir/verifier.h"
#include "seqtile/builder.h"
#include "seqtile/error.h"

namespace seqtile {

using ir::OpKind;
using ir::Type;
using ir::Value;

namespace {

[[noreturn]] void fail(const std::string& message) { throw Error(ErrorCode::compile_failed, message); }

/// The type that both sides are brought to: the tile where one is a scalar or a literal; at equal rank the larger
/// size where the other is 1. Anything else is left as it is and the verifier reports it.
Type joint_type(std::initializer_list<Operand> operands, std::string_view what) {
  std::optional<Type> joint;
  for (const Operand& operand : operands) {
    if (operand.is_literal()) continue;
    const Type& type = operand.var().type();
    if (!joint || (joint->is_scalar() && type.is_tile())) {
      joint = type;
    } else if (joint->is_tile() && type.is_tile() && joint->rank == type.rank) {
      for (int i = 0; i < type.rank; ++i)
        if (joint->shape[i] == 1) joint->shape[i] = type.shape[i];
    }
  }
  if (!joint) fail(std::string(what) + ": every operand is a literal; make one a constant of the wanted type");
  return *joint;
}

/// True if `type` can be brought to `joint` by full or broadcast.
bool stretches_to(const Type& type, const Type& joint) {
  if (!type.is_tile()) return true;
  if (type.rank != joint.rank) return false;
  for (int i = 0; i < type.rank; ++i)
    if (type.shape[i] != joint.shape[i] && type.shape[i] != 1) return false;
  return true;
}

/// The value of a constant index: a literal (2 * index arrives as 2.0) or the result of an i64 constant.
std::optional<int64_t> index_constant(const Operand& operand) {
  if (!operand.is_literal()) return ir::constant_value(operand.var().value());
  if (const int64_t* whole = std::get_if<int64_t>(&operand.literal())) return *whole;
  const double number = std::get<double>(operand.literal());
  return std::abs(number) < 0x1p53 && number == std::floor(number) ? std::optional(static_cast<int64_t>(number))
                                                                   : std::nullopt;
}

bool is_index(const Operand& operand) {
  return !operand.is_literal() && operand.var().type() == ir::scalar_type(DType::i64);
}

/// Index arithmetic: every side is an i64 scalar or a whole literal, and not all are literals with a fraction's type.
bool is_index_arithmetic(const Operand& a, const Operand& b) {
  const auto fits = [](const Operand& side) { return is_index(side) || (side.is_literal() && index_constant(side)); };
  const auto is_whole = [](const Operand& side) {
    return !side.is_literal() || std::holds_alternative<int64_t>(side.literal());
  };
  return fits(a) && fits(b) && (is_index(a) || is_index(b) || (is_whole(a) && is_whole(b)));
}

std::optional<int64_t> fold(OpKind kind, int64_t a, int64_t b) {
  int64_t result = 0;
  switch (kind) {
    case OpKind::add: return __builtin_add_overflow(a, b, &result) ? std::nullopt : std::optional(result);
    case OpKind::sub: return __builtin_sub_overflow(a, b, &result) ? std::nullopt : std::optional(result);
    case OpKind::mul: return __builtin_mul_overflow(a, b, &result) ? std::nullopt : std::optional(result);
    case OpKind::div: return b > 0 ? std::optional(a / b) : std::nullopt;
    case OpKind::rem: return b > 0 ? std::optional(a % b) : std::nullopt;
    case OpKind::min: return std::min(a, b);
    case OpKind::max: return std::max(a, b);
    default: return std::nullopt;
  }
}

/// a op b == a for every a.
bool is_right_identity(OpKind kind, std::optional<int64_t> b) {
  if (b == 0) return kind == OpKind::add || kind == OpKind::sub;
  return b == 1 && (kind == OpKind::mul || kind == OpKind::div);
}

KernelBuilder& builder_of(const Var& var) {
  if (!var.builder()) fail("a kernel uses a default-constructed Var; initialise it with a value of the builder");
  return *var.builder();
}

}  // namespace

Var KernelBuilder::unary(OpKind kind, Var a) { return emit(kind, {a.value()}, a.type()); }

std::vector<Value*> KernelBuilder::unify(std::initializer_list<Operand> operands, const Type& type) {
  std::vector<Value*> values;
  for (const Operand& operand : operands) {
    const bool fits = operand.is_literal() || stretches_to(operand.var().type(), type);
    values.push_back((fits ? as_like(operand, type) : operand.var()).value());
  }
  return values;
}

Var KernelBuilder::binary(OpKind kind, Operand a, Operand b) {
  if (is_index_arithmetic(a, b)) {  // index arithmetic: fold constants so that static sizes stay visible
    const std::optional<int64_t> left = index_constant(a), right = index_constant(b);
    if (left && right)
      if (const auto value = fold(kind, *left, *right)) return constant(DType::i64, *value);
    if (!a.is_literal() && is_right_identity(kind, right)) return a.var();
    const bool commutes = kind == OpKind::add || kind == OpKind::mul;
    if (!b.is_literal() && commutes && is_right_identity(kind, left)) return b.var();
  }
  std::vector<Value*> operands = unify({a, b}, joint_type({a, b}, ir::op_info(kind).name));
  const Type type = operands[0]->type;
  return emit(kind, std::move(operands), type);
}

Var KernelBuilder::compare(Compare predicate, Operand a, Operand b) {
  static constexpr const char* kNames[] = {"eq", "ne", "lt", "le", "gt", "ge"};
  std::vector<Value*> operands = unify({a, b}, joint_type({a, b}, "cmp"));
  const Type type = ir::with_dtype(operands[0]->type, DType::i1);
  return emit(OpKind::cmp, std::move(operands), type,
              {{"predicate", std::string(kNames[static_cast<int>(predicate)])}});
}

Var KernelBuilder::select(Var condition, Operand a, Operand b) {
  Type type = joint_type({a, b}, "select");
  if (type.is_view()) {
    const std::vector<Value*> views = unify({a, b}, type);
    return emit(OpKind::select, {condition.value(), views[0], views[1]}, ir::common_view(type, views[1]->type));
  }
  if (condition.type().is_tile()) {
    type = ir::with_dtype(joint_type({condition, a, b}, "select"), type.dtype);
    condition = Var(this, unify({condition}, type)[0]);
  }
  const std::vector<Value*> sides = unify({a, b}, type);
  return emit(OpKind::select, {condition.value(), sides[0], sides[1]}, sides[0]->type);
}

Var KernelBuilder::fma(Var a, Operand b, Operand c) {
  std::vector<Value*> operands = unify({a, b, c}, joint_type({a, b, c}, "fma"));
  const Type type = operands[0]->type;
  return emit(OpKind::fma, std::move(operands), type);
}

Var KernelBuilder::cast(Var a, DType dtype) {
  return a.type().dtype == dtype ? a : emit(OpKind::cast, {a.value()}, ir::with_dtype(a.type(), dtype));
}

Var KernelBuilder::bitcast(Var a, DType dtype) {
  return emit(OpKind::bitcast, {a.value()}, ir::with_dtype(a.type(), dtype));
}

Var KernelBuilder::cdiv(Operand a, Operand b) {
  return binary(OpKind::div, binary(OpKind::add, a, binary(OpKind::sub, b, 1)), b);
}

// compositions

Var KernelBuilder::exp(Var a) { return unary(OpKind::exp2, a * std::numbers::log2e); }

Var KernelBuilder::log(Var a) { return unary(OpKind::log2, a) * std::numbers::ln2; }

Var KernelBuilder::sigmoid(Var a) { return unary(OpKind::rcp, 1.0 + unary(OpKind::exp2, a * -std::numbers::log2e)); }

Var KernelBuilder::silu(Var a) { return a * sigmoid(a); }

Var KernelBuilder::gelu(Var a) {
  const Var half = a * 0.5;  // named: which operand of one operator is built first is the compiler's choice
  return half * (1.0 + unary(OpKind::erf, a * (1.0 / std::numbers::sqrt2)));
}

Var KernelBuilder::gelu_tanh(Var a) {
  // Hendrycks and Gimpel, "Gaussian Error Linear Units", 2016, section 2.
  const double scale = std::numbers::sqrt2 * std::numbers::inv_sqrtpi;
  const Var inner = a * (scale + scale * 0.044715 * (a * a));
  const Var half = a * 0.5;
  return half * (1.0 + unary(OpKind::tanh, inner));
}

// reduce

Var KernelBuilder::sum(Var tile, int axis) { return reduce(tile, axis, "sum"); }

Var KernelBuilder::reduce_max(Var tile, int axis) { return reduce(tile, axis, "max"); }

Var KernelBuilder::reduce(Var tile, int axis, std::string kind) {
  return emit(OpKind::reduce, {tile.value()}, ir::without_axis(tile.type(), axis),
              {{"axis", int64_t{axis}}, {"kind", std::move(kind)}});
}

std::pair<Var, Var> KernelBuilder::argreduce(Var tile, int axis, std::string kind) {
  const Type type = ir::without_axis(tile.type(), axis);
  ir::Op* op = function().append(block_, OpKind::argreduce, {tile.value()}, {type, ir::with_dtype(type, DType::i32)},
                                 {{"axis", int64_t{axis}}, {"kind", std::move(kind)}});
  ir::verify_op(*op);
  return {Var(this, op->results[0]), Var(this, op->results[1])};
}

Var KernelBuilder::scan(Var tile, int axis, std::string kind) {
  return emit(OpKind::scan, {tile.value()}, tile.type(), {{"axis", int64_t{axis}}, {"kind", std::move(kind)}});
}

Var KernelBuilder::dot(Var a, Var b, Var c, std::string precision) {
  return emit(OpKind::dot, {a.value(), b.value(), c.value()}, c.type(), {{"precision", std::move(precision)}});
}

// synchronisation

Var KernelBuilder::atomic(std::string kind, Var view, std::vector<Operand> offsets, Operand value, std::string order,
                          std::string scope) {
  const Type type = ir::scalar_type(view.type().dtype);
  std::vector<Value*> operands = {view.value()};
  append_indices(operands, offsets);
  operands.push_back(as_like(value, type).value());
  return emit(OpKind::atomic, std::move(operands), type,
              {{"kind", std::move(kind)}, {"order", std::move(order)}, {"scope", std::move(scope)}});
}

Var KernelBuilder::cas(Var view, std::vector<Operand> offsets, Operand expected, Operand desired, std::string order,
                       std::string scope) {
  const Type type = ir::scalar_type(view.type().dtype);
  std::vector<Value*> operands = {view.value()};
  append_indices(operands, offsets);
  operands.push_back(as_like(expected, type).value());
  operands.push_back(as_like(desired, type).value());
  return emit(OpKind::cas, std::move(operands), type, {{"order", std::move(order)}, {"scope", std::move(scope)}});
}

Var KernelBuilder::atomic_load(Var view, std::vector<Operand> offsets, std::string order, std::string scope) {
  std::vector<Value*> operands = {view.value()};
  append_indices(operands, offsets);
  return emit(OpKind::atomic_load, std::move(operands), ir::scalar_type(view.type().dtype),
              {{"order", std::move(order)}, {"scope", std::move(scope)}});
}

void KernelBuilder::wait_ge(Var view, std::vector<Operand> offsets, Operand value, std::string scope) {
  std::vector<Value*> operands = {view.value()};
  append_indices(operands, offsets);
  operands.push_back(as_like(value, ir::scalar_type(view.type().dtype)).value());
  emit_effect(OpKind::wait_ge, std::move(operands), {{"order", "acquire"}, {"scope", std::move(scope)}});
}

Var KernelBuilder::await(Var flags, std::vector<Operand> offsets, Operand expected, Var block) {
  std::vector<Value*> operands = {flags.value()};
  append_indices(operands, offsets);
  operands.push_back(as_index(expected));
  operands.push_back(block.value());
  return emit(OpKind::await, std::move(operands), ir::scalar_type(DType::i64));
}

Var KernelBuilder::clock(Var functions, std::vector<Operand> offsets) {
  std::vector<Value*> operands = {functions.value()};
  append_indices(operands, offsets);
  return emit(OpKind::clock, std::move(operands), ir::scalar_type(DType::i64));
}

void KernelBuilder::signal(std::string kind, Var view, std::vector<Operand> offsets, Operand value, std::string scope) {
  std::vector<Value*> operands = {view.value()};
  append_indices(operands, offsets);
  operands.push_back(as_like(value, ir::scalar_type(view.type().dtype)).value());
  emit_effect(OpKind::signal, std::move(operands),
              {{"kind", std::move(kind)}, {"order", "release"}, {"scope", std::move(scope)}});
}

void KernelBuilder::fence(std::string scope) {
  emit_effect(OpKind::fence, {}, {{"order", "acq_rel"}, {"scope", std::move(scope)}});
}

void KernelBuilder::griddep(std::string kind) { emit_effect(OpKind::griddep, {}, {{"kind", std::move(kind)}}); }

// debug

void KernelBuilder::assert_true(Var condition, std::string message) {
  emit_effect(OpKind::assert_true, {condition.value()}, {{"message", std::move(message)}});
}

void KernelBuilder::print(Var scalar, std::string message) {
  emit_effect(OpKind::print, {scalar.value()}, {{"message", std::move(message)}});
}

// operators

Var operator+(Var a, Operand b) { return builder_of(a).binary(OpKind::add, a, b); }
Var operator-(Var a, Operand b) { return builder_of(a).binary(OpKind::sub, a, b); }
Var operator*(Var a, Operand b) { return builder_of(a).binary(OpKind::mul, a, b); }
Var operator/(Var a, Operand b) { return builder_of(a).binary(OpKind::div, a, b); }
Var operator%(Var a, Operand b) { return builder_of(a).binary(OpKind::rem, a, b); }
Var operator-(Var a) { return builder_of(a).unary(OpKind::neg, a); }
Var operator<(Var a, Operand b) { return builder_of(a).compare(Compare::lt, a, b); }
Var operator<=(Var a, Operand b) { return builder_of(a).compare(Compare::le, a, b); }
Var operator>(Var a, Operand b) { return builder_of(a).compare(Compare::gt, a, b); }
Var operator>=(Var a, Operand b) { return builder_of(a).compare(Compare::ge, a, b); }
Var operator+(double a, Var b) { return builder_of(b).binary(OpKind::add, a, b); }
Var operator-(double a, Var b) { return builder_of(b).binary(OpKind::sub, a, b); }
Var operator*(double a, Var b) { return builder_of(b).binary(OpKind::mul, a, b); }
Var operator/(double a, Var b) { return builder_of(b).binary(OpKind::div, a, b); }

}  // namespace seqtile
