// tests/support/references/interpreter.h -- executes tile IR directly: the reference for code generation and for
// kernels.
// SPDX-License-Identifier: Apache-2.0
//
// One program after another in the order of the grid, one operation after another, elements in double (floats) or
// int64 wrapped to their width (integers). Only `cast`, `bitcast` and stores round to a narrower float, so a compiled
// kernel differs by its own rounding and nothing else. Slow by design: use small shapes.
#pragma once
#include <span>
#include <variant>

#include "jit/device/kernel.h"
#include "jit/device/tensor.h"
#include "jit/ir/function.h"

namespace seqtile::testing {

/// The value of a parameter: a tensor for a view, an integer or a float for a scalar.
using ParamValue = std::variant<Tensor, int64_t, double>;

/// Runs every program of `grid`. An absent tensor (null data) is a view whose sizes are all 0.
/// Errors: invalid_argument where a parameter does not fit its type; wrong_result where a program does what no
/// kernel may do (a scalar access, slice or index out of range, division by zero, a broken assumption); timeout
/// where wait_ge can never be satisfied because programs run one after another.
void interpret(const ir::Function& function, Grid grid, std::span<const ParamValue> params);

}  // namespace seqtile::testing
