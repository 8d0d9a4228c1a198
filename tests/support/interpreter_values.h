// tests/support/interpreter_values.h -- scalars and tiles of the interpreter and the operations on them.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <span>
#include <vector>

#include "jit/ir/function.h"

namespace seqtile::testing {

/// A scalar or a tile in row-major order; `floats` or `ints` is used, as the dtype says.
struct TileData {
  ir::Type type;
  std::vector<double> floats;
  std::vector<int64_t> ints;

  TileData() = default;
  explicit TileData(const ir::Type& t);
  bool holds_floats() const { return is_float(type.dtype); }
};

/// The nearest value that `dtype` holds.
double round_to(DType dtype, double value);
/// The low bits of `value`, sign-extended; i1 keeps the lowest bit.
int64_t wrap_to(DType dtype, int64_t value);
/// The element at `index` of a float as it is stored, or of an integer.
void set_element(TileData& tile, int64_t index, double value);

/// The results of a value operation (create, shape, unary, binary, reduce, dot). Errors: wrong_result.
std::vector<TileData> evaluate(const ir::Op& op, std::span<const TileData* const> operands);

}  // namespace seqtile::testing
