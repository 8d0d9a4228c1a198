// jit/ir/op_rules_values.cpp -- rules of creation, shape, arithmetic, reductions and dot.
// SPDX-License-Identifier: Apache-2.0
#include "jit/ir/op_rules.h"

namespace seqtile::ir {

namespace {

bool same_shape(const Type& a, const Type& b) { return with_dtype(a, b.dtype) == b; }

}  // namespace

void OpRules::check_create() const {
  switch (op_.kind) {
    case OpKind::constant: return check_constant();
    case OpKind::full:
      require(operand(0).is_scalar(), "the operand is not a scalar", {{"it", operand(0)}});
      return require(result().is_tile() && result().dtype == operand(0).dtype,
                     "the result is not a tile of the operand's type",
                     {{"the operand", operand(0)}, {"the result", result()}});
    case OpKind::iota:
      return require(result().is_tile() && result().rank == 1 && result().dtype == DType::i32,
                     "the result is not a tile<[n], i32>", {{"it", result()}});
    default:  // rand
      require(is_scalar_of(operand(0), DType::i64), "the seed is not an i64 scalar", {{"it", operand(0)}});
      require(operand(1).is_tile() && operand(1).dtype == DType::i32, "the counters are not a tile of i32",
              {{"the operand", operand(1)}});
      return require(result() == with_dtype(operand(1), DType::f32),
                     "the result is not an f32 tile of the counters' shape", {{"it", result()}});
  }
}

void OpRules::check_constant() const {
  require(result().is_scalar(), "the result is not a scalar", {{"it", result()}});
  const auto it = op_.attributes.find("value");
  const DType dtype = result().dtype;
  if (it == op_.attributes.end() || it->second.index() != (is_float(dtype) ? 1u : 0u))
    fail("the attribute 'value' is not " + std::string(is_float(dtype) ? "a float" : "an integer") + ", as " +
         std::string(dtype_name(dtype)) + " asks");
  if (is_float(dtype) || dtype == DType::i64) return;
  const int64_t value = std::get<int64_t>(it->second);
  const int bits = dtype == DType::i1 ? 1 : static_cast<int>(8 * dtype_bytes(dtype));
  const int64_t lo = dtype == DType::i1 ? 0 : -(int64_t{1} << (bits - 1));
  const int64_t hi = dtype == DType::i1 ? 1 : (int64_t{1} << (bits - 1)) - 1;
  if (value < lo || value > hi)
    fail("the value " + std::to_string(value) + " does not fit " + std::string(dtype_name(dtype)));
}

void OpRules::check_shape() const {
  const Type& a = operand(0);
  for (const Value* value : op_.operands)
    require(value->type.is_tile(), "the operand is not a tile", {{"it", value->type}});
  for (const Value* value : op_.results)
    require(value->type.is_tile() && value->type.dtype == a.dtype, "the result is not a tile of the operand's dtype",
            {{"the operand", a}, {"the result", value->type}});
  switch (op_.kind) {
    case OpKind::expand:
      require(a.rank < kMaxTileRank, "the operand has no room for another dimension", {{"it", a}});
      return require_result(expanded(a, int_attribute("axis", 0, a.rank)));
    case OpKind::broadcast: return check_broadcast(a);
    case OpKind::reshape:
      return require(a.num_elements() == result().num_elements(), "the number of elements changes",
                     {{"the operand", a}, {"the result", result()}});
    case OpKind::trans: return check_trans(a);
    case OpKind::split:
      require(last_dim(a) % 2 == 0, "the last dimension is odd", {{"the operand", a}});
      for (const Value* half : op_.results)
        require(half->type == with_last_dim(a, last_dim(a) / 2), "a result is not half of the last dimension",
                {{"the operand", a}, {"the result", half->type}});
      return;
    case OpKind::join:
      require(a == operand(1), "the operands differ", {{"a", a}, {"b", operand(1)}});
      return require_result(with_last_dim(a, last_dim(a) * 2));
    default: {  // concat
      const Type& b = operand(1);
      require(a.dtype == b.dtype && with_last_dim(a, 1) == with_last_dim(b, 1),
              "the operands differ in more than the last dimension", {{"a", a}, {"b", b}});
      return require_result(with_last_dim(a, last_dim(a) + last_dim(b)));
    }
  }
}

void OpRules::check_broadcast(const Type& a) const {
  bool fits = a.rank == result().rank;
  for (int i = 0; fits && i < a.rank; ++i) fits = a.shape[i] == result().shape[i] || a.shape[i] == 1;
  require(fits, "only dimensions of size 1 stretch, at equal rank", {{"the operand", a}, {"the result", result()}},
          "expand first where a dimension is missing");
}

void OpRules::check_trans(const Type& a) const {
  const auto it = op_.attributes.find("perm");
  const auto* perm = it == op_.attributes.end() ? nullptr : std::get_if<std::vector<int64_t>>(&it->second);
  require(perm && is_permutation(*perm, a.rank), "perm does not name every dimension once", {{"the operand", a}});
  require_result(permuted(a, *perm));
}

void OpRules::check_unary() const {
  const Type& a = operand(0);
  require(!a.is_view(), "the operand is a view", {{"it", a}}, "load from it first");
  switch (op_.kind) {
    case OpKind::cast:
      return require(same_shape(a, result()), "the shape changes", {{"the operand", a}, {"the result", result()}});
    case OpKind::bitcast:
      require(same_shape(a, result()), "the shape changes", {{"the operand", a}, {"the result", result()}});
      return require(is_number(a) && is_number(result()) && dtype_bytes(a.dtype) == dtype_bytes(result().dtype),
                     "the widths differ", {{"the operand", a}, {"the result", result()}});
    case OpKind::neg:
    case OpKind::abs: require(is_number(a), "the operand is not a number", {{"it", a}}); break;
    case OpKind::bit_not: require(is_integer(a.dtype), "the operand is not an integer", {{"it", a}}); break;
    default: require(is_float(a.dtype), "the operand is not a float", {{"it", a}}, "cast it first"); break;
  }
  require_result(a);
}

void OpRules::check_binary() const {
  if (op_.kind == OpKind::select) return check_select();
  const Type& a = operand(0);
  for (size_t i = 0; i < op_.operands.size(); ++i) {
    require(!operand(i).is_view(), "an operand is a view", {{"it", operand(i)}}, "load from it first");
    require(operand(i) == a, "the operands differ", {{"a", a}, {i == 1 ? "b" : "c", operand(i)}},
            "cast, expand or broadcast one of them");
  }
  switch (op_.kind) {
    case OpKind::cmp:
      choice("predicate", {"eq", "ne", "lt", "le", "gt", "ge"});
      return require_result(with_dtype(a, DType::i1));
    case OpKind::bit_and:
    case OpKind::bit_or:
    case OpKind::bit_xor: require(is_integer(a.dtype), "the operands are not integers", {{"a", a}}); break;
    case OpKind::shl:
    case OpKind::shr:
    case OpKind::rem: require(is_integer(a.dtype) && is_number(a), "the operands are not integers", {{"a", a}}); break;
    case OpKind::pow: require(is_float(a.dtype), "the operands are not floats", {{"a", a}}); break;
    default: require(is_number(a), "the operands are not numbers", {{"a", a}}); break;
  }
  require_result(a);
}

void OpRules::check_select() const {
  const Type &condition = operand(0), &a = operand(1), &b = operand(2);
  if (a.is_view()) {
    require(is_scalar_of(condition, DType::i1), "the condition is not an i1 scalar", {{"it", condition}});
    require(b.is_view() && a.rank == b.rank && a.dtype == b.dtype, "the views differ in rank or dtype",
            {{"a", a}, {"b", b}});
    return require(promises_no_more(result(), common_view(a, b)), "the result promises more than both views",
                   {{"a", a}, {"b", b}, {"the result", result()}});
  }
  require(a == b, "the operands differ", {{"a", a}, {"b", b}}, "cast, expand or broadcast one of them");
  require(is_scalar_of(condition, DType::i1) || condition == with_dtype(a, DType::i1),
          "the condition is neither an i1 scalar nor an i1 tile of the operands' shape",
          {{"the condition", condition}, {"a", a}});
  require_result(a);
}

void OpRules::check_reduce() const {
  const Type& a = operand(0);
  require(a.is_tile(), "the operand is not a tile", {{"it", a}});
  const int64_t axis = axis_of(a);
  if (op_.kind == OpKind::reduce) {
    const bool is_any = choice("kind", {"sum", "max", "min", "prod", "any"}) == "any";
    require(is_any == is_i1(a), "kind any is for i1 tiles, the other kinds for numbers", {{"the operand", a}});
    return require_result(without_axis(a, axis));
  }
  require(is_number(a), "the operand is not a tile of numbers", {{"it", a}});
  if (op_.kind == OpKind::scan) {
    choice("kind", {"sum", "max"});
    return require_result(a);
  }
  choice("kind", {"max", "min"});
  const Type dropped = without_axis(a, axis);
  require_result(dropped);
  require(result(1) == with_dtype(dropped, DType::i32), "the index result is not i32 of the value's shape",
          {{"the index", result(1)}, {"the value", dropped}});
}

void OpRules::check_dot() const {
  const Type &a = operand(0), &b = operand(1), &c = operand(2);
  choice("precision", {"native", "tf32"});
  for (size_t i = 0; i < 3; ++i)
    require(operand(i).is_tile() && operand(i).rank == 2, "the operands are not tiles of rank 2",
            {{"a", a}, {"b", b}, {"c", c}});
  require(a.dtype == b.dtype, "the element types differ", {{"a", a}, {"b", b}}, "cast one of them");
  require(a.dtype == DType::f32 || a.dtype == DType::bf16 || a.dtype == DType::f16,
          "the element type is not f32, bf16 or f16", {{"a", a}});
  require(c.dtype == DType::f32, "the accumulator is not f32", {{"c", c}});
  require(a.shape[1] == b.shape[0], "inner dimensions differ", {{"a", a}, {"b", b}}, "both must agree on k");
  require(c.shape[0] == a.shape[0], "outer dimensions differ", {{"a", a}, {"c", c}}, "both must agree on m");
  require(c.shape[1] == b.shape[1], "outer dimensions differ", {{"b", b}, {"c", c}}, "both must agree on n");
  require_result(c);
}

}  // namespace seqtile::ir
