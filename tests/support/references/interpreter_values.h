// tests/support/references/interpreter_values.h -- the interpreter's operations on scalars and tiles.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <span>
#include <vector>

#include "tests/support/references/interpreter_tile.h"

namespace seqtile::testing {

/// The results of a value operation (create, shape, unary, binary, reduce, dot). Errors: wrong_result.
std::vector<TileData> evaluate(const ir::Op& op, std::span<const TileData* const> operands);

}  // namespace seqtile::testing
