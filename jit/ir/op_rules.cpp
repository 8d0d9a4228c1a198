// jit/ir/op_rules.cpp -- reporting, attributes and counts of the operation rules.
// SPDX-License-Identifier: Apache-2.0
#include "jit/ir/op_rules.h"

#include <algorithm>
#include <cmath>

#include "jit/ir/verifier.h"
#include "seqtile/error.h"

namespace seqtile::ir {

bool promises_no_more(const Type& type, const Type& known) {
  if (!type.is_view() || !known.is_view() || type.rank != known.rank || type.dtype != known.dtype) return false;
  for (int i = 0; i < type.rank; ++i)
    if (type.shape[i] != known.shape[i] && type.shape[i] != kDynamic) return false;
  return type.contiguous <= known.contiguous && type.noalias <= known.noalias && type.alignment > 0 &&
         known.alignment % type.alignment == 0;
}

void OpRules::check() const {
  check_counts();
  for (const Value* result : op_.results)
    if (const std::string problem = check_type(result->type); !problem.empty())
      fail("the result " + to_string(result->type) + ": " + problem);
  switch (op_.info().group) {
    case OpGroup::control: return check_control();
    case OpGroup::create: return check_create();
    case OpGroup::shape: return check_shape();
    case OpGroup::unary: return check_unary();
    case OpGroup::binary: return check_binary();
    case OpGroup::reduce: return check_reduce();
    case OpGroup::dot: return check_dot();
    case OpGroup::memory: return check_memory();
    case OpGroup::sync: return check_sync();
    case OpGroup::debug: return check_debug();
  }
}

void OpRules::fail(const std::string& message) const {
  throw Error(ErrorCode::compile_failed, op_label(op_) + ": " + message);
}

void OpRules::require(bool ok, const char* rule, std::initializer_list<Named> types, const char* advice) const {
  if (ok) return;
  std::string message = rule;
  const char* separator = ": ";
  for (const Named& named : types) {
    message += separator + std::string(named.name) + " is " + to_string(named.type);
    separator = ", ";
  }
  if (*advice) message += std::string("; ") + advice;
  fail(message);
}

void OpRules::require_operands(size_t count) const {
  if (op_.operands.size() != count)
    fail("takes " + std::to_string(count) + " operands here, not " + std::to_string(op_.operands.size()));
}

int64_t OpRules::int_attribute(std::string_view name, int64_t lo, int64_t hi) const {
  const auto it = op_.attributes.find(name);
  const int64_t* value = it == op_.attributes.end() ? nullptr : std::get_if<int64_t>(&it->second);
  if (!value) fail("the integer attribute '" + std::string(name) + "' is missing");
  if (*value < lo || *value > hi)
    fail(std::string(name) + " " + std::to_string(*value) + " is not in " + std::to_string(lo) + ".." +
         std::to_string(hi));
  return *value;
}

std::string_view OpRules::string_attribute(std::string_view name) const {
  const auto it = op_.attributes.find(name);
  const std::string* value = it == op_.attributes.end() ? nullptr : std::get_if<std::string>(&it->second);
  if (!value) fail("the string attribute '" + std::string(name) + "' is missing");
  return *value;
}

std::string_view OpRules::choice(std::string_view name, std::initializer_list<std::string_view> allowed) const {
  const std::string_view value = string_attribute(name);
  if (std::find(allowed.begin(), allowed.end(), value) != allowed.end()) return value;
  std::string message = std::string(name) + " '" + std::string(value) + "' is not one of";
  for (const std::string_view item : allowed) message += " " + std::string(item);
  fail(message);
}

int64_t OpRules::axis_of(const Type& type) const {
  require(type.rank > 0, "the operand has no dimensions", {{"operand", type}});
  return int_attribute("axis", 0, type.rank - 1);
}

void OpRules::check_fill() const {
  const auto it = op_.attributes.find("fill");
  const double* fill = it == op_.attributes.end() ? nullptr : std::get_if<double>(&it->second);
  if (!fill) fail("the float attribute 'fill' is missing");
  if (is_integer(result().dtype) && *fill != std::floor(*fill))
    fail("fill " + std::to_string(*fill) + " is not a whole number, but the elements are " +
         std::string(dtype_name(result().dtype)));
}

void OpRules::check_counts() const {
  const OpInfo& info = op_.info();
  const auto check = [&](size_t count, int expected, const char* what) {
    if (expected >= 0 && count != static_cast<size_t>(expected))
      fail("takes " + std::to_string(expected) + " " + what + ", not " + std::to_string(count));
  };
  check(op_.operands.size(), info.num_operands, "operands");
  check(op_.results.size(), info.num_results, "results");
  check(op_.regions.size(), info.num_regions, "regions");
  for (const Value* operand : op_.operands)
    if (!operand) fail("an operand is missing");
  for (const auto& [name, value] : op_.attributes)
    if (!is_word(name)) fail("the attribute's name '" + name + "' must consist of letters, digits, '_', '.' and '$'");
}

void OpRules::require_result(const Type& expected) const {
  require(result() == expected, "the result type is wrong", {{"it", result()}, {"the type implied", expected}});
}

void OpRules::check_debug() const {
  string_attribute("message");
  if (op_.kind == OpKind::assert_true) return check_condition();
  require(operand(0).is_scalar(), "the operand is not a scalar", {{"it", operand(0)}});
}

void verify_op(const Op& op) { OpRules(op).check(); }

}  // namespace seqtile::ir
