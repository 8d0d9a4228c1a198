// tests/support/references/interpreter_tile.cpp -- see interpreter_tile.h.
// SPDX-License-Identifier: Apache-2.0
#include "tests/support/references/interpreter_tile.h"

#include <cmath>
#include <cstring>
#include <limits>

#include "seqtile/error.h"

namespace seqtile::testing {

using ir::Type;

TileData::TileData(const Type& t) : type(t) {
  if (is_float(t.dtype)) {
    floats.resize(static_cast<size_t>(t.num_elements()));
  } else {
    ints.resize(static_cast<size_t>(t.num_elements()));
  }
}

double round_to(DType dtype, double value) {
  switch (dtype) {
    case DType::f16: return f16_to_f32(f32_to_f16(static_cast<float>(value)));
    case DType::bf16: return bf16_to_f32(f32_to_bf16(static_cast<float>(value)));
    case DType::f32: return static_cast<float>(value);
    default: return value;
  }
}

int64_t wrap_to(DType dtype, int64_t value) {
  switch (dtype) {
    case DType::i1: return value & 1;
    case DType::i8: return static_cast<int8_t>(value);
    case DType::i16: return static_cast<int16_t>(value);
    case DType::i32: return static_cast<int32_t>(value);
    default: return value;
  }
}

void set_element(TileData& tile, int64_t index, double value) {
  if (tile.holds_floats()) {
    tile.floats[index] = value;
  } else {
    tile.ints[index] = float_to_int(tile.type.dtype, value);
  }
}

int64_t float_to_int(DType dtype, double x) {
  if (dtype == DType::i1) return x != 0;
  if (std::isnan(x)) return 0;
  const double limit = std::ldexp(1.0, static_cast<int>(8 * dtype_bytes(dtype)) - 1);
  if (x <= -limit) return dtype == DType::i64 ? std::numeric_limits<int64_t>::min() : static_cast<int64_t>(-limit);
  if (x >= limit) return dtype == DType::i64 ? std::numeric_limits<int64_t>::max() : static_cast<int64_t>(limit) - 1;
  return static_cast<int64_t>(x);
}

void read_element(TileData& tile, int64_t index, const char* address) {
  const DType dtype = tile.type.dtype;
  if (is_float(dtype)) {
    tile.floats[index] = seqtile::read_element(make_tensor(const_cast<char*>(address), dtype, {}), 0);
    return;
  }
  const int64_t bytes = dtype_bytes(dtype), unused = 64 - 8 * bytes;
  uint64_t bits = 0;
  std::memcpy(&bits, address, static_cast<size_t>(bytes));
  tile.ints[index] = dtype == DType::i1 ? bits & 1 : static_cast<int64_t>(bits << unused) >> unused;
}

void write_element(const TileData& tile, int64_t index, char* address) {
  const DType dtype = tile.type.dtype;
  if (is_float(dtype)) seqtile::write_element(make_tensor(address, dtype, {}), 0, tile.floats[index]);
  else std::memcpy(address, &tile.ints[index], static_cast<size_t>(dtype_bytes(dtype)));
}

View bind_view(const std::string& name, const Type& type, const Tensor& tensor) {
  const auto fail = [&](const std::string& message) {
    throw Error(ErrorCode::invalid_argument, "parameter " + name + ": " + message + "; it is " + to_string(type));
  };
  View view{static_cast<char*>(tensor.data), type.dtype, type.rank};
  if (!tensor.data) return view;
  if (tensor.dtype != type.dtype) fail("the tensor's elements are " + std::string(dtype_name(tensor.dtype)));
  if (tensor.rank != type.rank) fail("the tensor has " + std::to_string(tensor.rank) + " dimensions");
  view.sizes = tensor.sizes;
  view.strides = tensor.strides;
  const auto is_aligned = [&](int64_t bytes) { return bytes % type.alignment == 0; };
  if (!is_aligned(static_cast<int64_t>(reinterpret_cast<uintptr_t>(tensor.data)))) fail("the base is not aligned");
  for (int i = 0; i < type.rank; ++i) {
    if (type.shape[i] != ir::kDynamic && type.shape[i] != tensor.sizes[i])
      fail("size " + std::to_string(i) + " of the tensor is " + std::to_string(tensor.sizes[i]));
    if (i + 1 < type.rank && tensor.sizes[i] > 1 && !is_aligned(tensor.strides[i] * dtype_bytes(type.dtype)))
      fail("stride " + std::to_string(i) + " is not aligned");
  }
  if (type.contiguous && tensor.sizes[type.rank - 1] > 1 && tensor.strides[type.rank - 1] != 1)
    fail("the innermost stride is " + std::to_string(tensor.strides[type.rank - 1]));
  return view;
}

}  // namespace seqtile::testing
