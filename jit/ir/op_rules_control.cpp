// jit/ir/op_rules_control.cpp -- rules of loops, branches and their nested blocks.
// SPDX-License-Identifier: Apache-2.0
#include "jit/ir/op_rules.h"

#include <algorithm>

namespace seqtile::ir {

void OpRules::check_region(const Block& region, size_t extra_arguments, size_t extra_yields, bool carries) const {
  if (region.parent != &op_) fail("a region belongs to another operation");
  if (region.ops.empty() || region.ops.back()->kind != OpKind::yield) fail("a region does not end in a yield");
  const size_t count = op_.results.size();
  const size_t arguments = carries ? extra_arguments + count : 0;
  if (region.arguments.size() != arguments)
    fail("a region takes " + std::to_string(arguments) + " arguments, not " + std::to_string(region.arguments.size()));
  const auto& yielded = region.yielded();
  if (yielded.size() != extra_yields + count)
    fail("a region yields " + std::to_string(yielded.size()) + " values; " + std::to_string(extra_yields + count) +
         " are expected");
  for (size_t i = 0; i < count; ++i) {
    const Type& type = result(i);
    require(!type.is_view(), "a view cannot be carried", {{"the result", type}}, "select between views instead");
    const Type& yield_type = yielded[extra_yields + i]->type;
    if (yield_type != type)
      fail("the yielded value " + std::to_string(i) + " is " + to_string(yield_type) + ", the result is " +
           to_string(type));
    if (carries && region.arguments[extra_arguments + i]->type != type)
      fail("the block argument " + std::to_string(i) + " is " + to_string(region.arguments[extra_arguments + i]->type) +
           ", the result is " + to_string(type));
  }
}

void OpRules::check_inits(size_t first) const {
  if (op_.operands.size() < first || op_.operands.size() - first != op_.results.size())
    fail("has " + std::to_string(op_.results.size()) + " results, but carries " +
         std::to_string(op_.operands.size() - std::min(first, op_.operands.size())) + " values");
  for (size_t i = 0; i < op_.results.size(); ++i)
    require(operand(first + i) == result(i), "an initial value differs from the result it becomes",
            {{"the initial value", operand(first + i)}, {"the result", result(i)}});
}

void OpRules::check_condition() const {
  require(is_scalar_of(operand(0), DType::i1), "the condition is not an i1 scalar", {{"it", operand(0)}});
}

void OpRules::check_control() const {
  switch (op_.kind) {
    case OpKind::program_id:
    case OpKind::num_programs:
      int_attribute("axis", 0, 2);
      return require(is_scalar_of(result(), DType::i64), "the result is not i64", {{"it", result()}});
    case OpKind::for_loop: return check_for();
    case OpKind::if_then:
      check_condition();
      for (const Block* region : op_.regions) check_region(*region, 0, 0, false);
      return;
    case OpKind::while_loop: return check_while();
    case OpKind::assume: return check_condition();
    default: return;  // yield: its parent checks it
  }
}

void OpRules::check_for() const {
  if (op_.operands.size() < 3) fail("takes lo, hi and step, then the initial values");
  for (size_t i = 0; i < 3; ++i)
    require(is_scalar_of(operand(i), DType::i64), "a bound or step is not an i64 scalar", {{"it", operand(i)}});
  if (const auto step = constant_value(op_.operands[2]); step && *step <= 0)
    fail("the step " + std::to_string(*step) + " must be positive");
  check_inits(3);
  const Block& body = *op_.regions[0];
  check_region(body, 1, 0, true);
  require(is_scalar_of(body.arguments[0]->type, DType::i64), "the induction variable is not i64",
          {{"it", body.arguments[0]->type}});
}

void OpRules::check_while() const {
  check_inits(0);
  check_region(*op_.regions[0], 0, 1, true);
  check_region(*op_.regions[1], 0, 0, true);
  const Type& condition = op_.regions[0]->yielded()[0]->type;
  require(is_scalar_of(condition, DType::i1), "the condition is not an i1 scalar", {{"it", condition}});
}

}  // namespace seqtile::ir
