// tests/support/references/interpreter_tile.cpp -- see interpreter_tile.h.
// SPDX-License-Identifier: Apache-2.0
#include "tests/support/references/interpreter_tile.h"

#include <cmath>
#include <cstring>
#include <limits>

#include "seqtile/error.h"

namespace seqtile::testing {

using ir::Type;

namespace {

template <class T>
T read_as(const char* address) {
  T value;
  std::memcpy(&value, address, sizeof(T));
  return value;
}

template <class T>
void write_as(char* address, T value) {
  std::memcpy(address, &value, sizeof(T));
}

}  // namespace

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
  switch (tile.type.dtype) {
    case DType::i1: tile.ints[index] = read_as<uint8_t>(address) & 1; break;
    case DType::i8: tile.ints[index] = read_as<int8_t>(address); break;
    case DType::i16: tile.ints[index] = read_as<int16_t>(address); break;
    case DType::i32: tile.ints[index] = read_as<int32_t>(address); break;
    case DType::i64: tile.ints[index] = read_as<int64_t>(address); break;
    case DType::f16: tile.floats[index] = f16_to_f32(read_as<uint16_t>(address)); break;
    case DType::bf16: tile.floats[index] = bf16_to_f32(read_as<uint16_t>(address)); break;
    case DType::f32: tile.floats[index] = read_as<float>(address); break;
    case DType::f64: tile.floats[index] = read_as<double>(address); break;
  }
}

void write_element(const TileData& tile, int64_t index, char* address) {
  switch (tile.type.dtype) {
    case DType::i1:
    case DType::i8: write_as(address, static_cast<int8_t>(tile.ints[index])); break;
    case DType::i16: write_as(address, static_cast<int16_t>(tile.ints[index])); break;
    case DType::i32: write_as(address, static_cast<int32_t>(tile.ints[index])); break;
    case DType::i64: write_as(address, tile.ints[index]); break;
    case DType::f16: write_as(address, f32_to_f16(static_cast<float>(tile.floats[index]))); break;
    case DType::bf16: write_as(address, f32_to_bf16(static_cast<float>(tile.floats[index]))); break;
    case DType::f32: write_as(address, static_cast<float>(tile.floats[index])); break;
    case DType::f64: write_as(address, tile.floats[index]); break;
  }
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
