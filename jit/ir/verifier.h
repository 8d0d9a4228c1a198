// jit/ir/verifier.h -- the rules of one operation (verify() in seqtile/ir.h applies them to a whole function).
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "seqtile/ir.h"

namespace seqtile::ir {

/// Checks operand and result types, attributes and regions of `op` alone: everything but where its operands are
/// defined. Errors: compile_failed naming the operation and the rule that it breaks.
void verify_op(const Op& op);

/// Letters, digits, '_', '.' and '$', at least one: names of kernels, parameters and attributes, as the text form
/// can hold them.
bool is_word(std::string_view name);

}  // namespace seqtile::ir
