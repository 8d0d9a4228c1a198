// tests/support/references/interpreter_tile.h -- scalars and tiles of the interpreter, and its view of memory.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <array>
#include <span>
#include <string>
#include <vector>

#include "seqtile/ir.h"
#include "seqtile/tensor.h"

namespace seqtile::testing {

/// A scalar, or a tile in row-major order. The dtype selects `floats` or `ints`.
struct TileData {
  ir::Type type;
  std::vector<double> floats;
  std::vector<int64_t> ints;

  TileData() = default;
  explicit TileData(const ir::Type& t);
  bool holds_floats() const { return is_float(type.dtype); }
};

/// The value of `dtype` nearest to `value`.
double round_to(DType dtype, double value);
/// The low bits of `value`, sign-extended; i1 keeps the lowest bit.
int64_t wrap_to(DType dtype, int64_t value);
/// Sets the element at `index`: a float as it is stored, or an integer.
void set_element(TileData& tile, int64_t index, double value);
/// Truncation toward zero; values beyond the range saturate, NaN becomes 0.
int64_t float_to_int(DType dtype, double x);

/// Copy the element at `index` from memory, and to memory.
void read_element(TileData& tile, int64_t index, const char* address);
void write_element(const TileData& tile, int64_t index, char* address);

/// Memory as a view sees it. Elements out of range have no address.
struct View {
  char* base = nullptr;
  DType dtype = DType::f32;
  int rank = 0;
  std::array<int64_t, ir::kMaxViewRank> sizes{}, strides{};

  char* address(std::span<const int64_t> index) const {
    int64_t offset = 0;
    for (int i = 0; i < rank; ++i) {
      if (index[i] < 0 || index[i] >= sizes[i]) return nullptr;
      offset += index[i] * strides[i];
    }
    return base + offset * dtype_bytes(dtype);
  }
};
/// Errors: invalid_argument if the tensor does not fit the type.
View bind_view(const std::string& name, const ir::Type& type, const Tensor& tensor);

}  // namespace seqtile::testing
