// tests/support/references/interpreter.h -- executes tile IR directly, as the reference for code generation and
// kernels.
// SPDX-License-Identifier: Apache-2.0
//
// Programs run one after the other in the order of the grid, and operations one after the other. Elements are double
// (floats), or int64 wrapped to their width (integers). Only `cast`, `bitcast` and stores round to a narrower float, so
// that a compiled kernel differs only by its own rounding. The interpreter is slow by design: use small shapes.
#pragma once
#include <span>
#include <variant>

#include "seqtile/device.h"
#include "seqtile/ir.h"
#include "seqtile/tensor.h"

namespace seqtile::testing {

/// The value of a parameter: a tensor for a view, an integer or a float for a scalar.
using ParamValue = std::variant<Tensor, int64_t, double>;

/// Runs all programs of `grid`. An absent tensor (null data) is a view whose sizes are all 0. Errors: invalid_argument
/// if a parameter does not fit its type; wrong_result if a program breaks a rule (a scalar access, slice or index out
/// of range, division by zero, a false assumption); timeout if wait_ge can never be satisfied, because programs run one
/// after the other.
void interpret(const ir::Function& function, Grid grid, std::span<const ParamValue> params);

}  // namespace seqtile::testing
