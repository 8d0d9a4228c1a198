// include/seqtile/tensor.h -- element types, and references to memory that the caller owns.
// SPDX-License-Identifier: Apache-2.0
//
// f16 and bf16 are storage formats: every kernel accumulates in f32. Conversions round to nearest even.
#pragma once
#include <algorithm>
#include <array>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string_view>
#include <type_traits>
#include <vector>

namespace seqtile {

/// The enumerators' values are stored in binaries: do not renumber.
enum class DType : uint8_t { i1 = 0, i8 = 1, i16 = 2, i32 = 3, i64 = 4, f16 = 5, bf16 = 6, f32 = 7, f64 = 8 };

/// Bytes one element takes in memory (i1 takes one).
inline constexpr int64_t kDTypeBytes[] = {1, 1, 2, 4, 8, 2, 2, 4, 8};
constexpr int64_t dtype_bytes(DType dtype) { return kDTypeBytes[static_cast<int>(dtype)]; }

constexpr bool is_float(DType dtype) { return dtype >= DType::f16; }
constexpr bool is_integer(DType dtype) { return dtype < DType::f16; }

/// "i1" ... "f64".
std::string_view dtype_name(DType dtype);
/// Accepts the names above and PyTorch's ("float32", "bfloat16", "float16", "half", "float", "double", "int32",
/// "int64").
std::optional<DType> parse_dtype(std::string_view name);

float f16_to_f32(uint16_t bits);
uint16_t f32_to_f16(float value);
float bf16_to_f32(uint16_t bits);
uint16_t f32_to_bf16(float value);

constexpr int kMaxRank = 4;

/// A reference to memory that the caller owns: pointer, dtype, sizes, strides. Strides are in elements. A
/// default-constructed tensor is "absent" (an optional argument that is not given).
struct Tensor {
  void* data = nullptr;
  DType dtype = DType::f32;
  int rank = 0;
  std::array<int64_t, kMaxRank> sizes{};
  std::array<int64_t, kMaxRank> strides{};

  int64_t num_elements() const {
    int64_t count = 1;
    for (int i = 0; i < rank; ++i) count *= sizes[static_cast<size_t>(i)];
    return count;
  }
};

/// A dense row-major tensor over `data`.
inline Tensor make_tensor(void* data, DType dtype, std::span<const int64_t> sizes) {
  Tensor tensor{data, dtype, static_cast<int>(sizes.size()), {}, {}};
  std::copy(sizes.begin(), sizes.end(), tensor.sizes.begin());
  int64_t stride = 1;
  for (size_t d = sizes.size(); d-- > 0;) {
    tensor.strides[d] = stride;
    stride *= tensor.sizes[d];
  }
  return tensor;
}
inline Tensor make_tensor(void* data, DType dtype, std::initializer_list<int64_t> sizes) {
  return make_tensor(data, dtype, std::span<const int64_t>(sizes.begin(), sizes.size()));
}

/// The dtype that a C++ type is: float, double, int8_t, int16_t, int32_t, int64_t. 16-bit floats have no C++ type here:
/// make_tensor() takes their DType.
template <class T>
constexpr DType dtype_of() {
  if constexpr (std::is_same_v<T, float>) return DType::f32;
  else if constexpr (std::is_same_v<T, double>) return DType::f64;
  else if constexpr (std::is_same_v<T, int8_t>) return DType::i8;
  else if constexpr (std::is_same_v<T, int16_t>) return DType::i16;
  else if constexpr (std::is_same_v<T, int32_t>) return DType::i32;
  else {
    static_assert(std::is_same_v<T, int64_t>, "no dtype has this type; call make_tensor(pointer, dtype, sizes)");
    return DType::i64;
  }
}

/// A dense row-major tensor over `data`, whose type says the dtype. An input may be const.
template <class T>
Tensor tensor(T* data, std::initializer_list<int64_t> sizes) {
  using Element = std::remove_const_t<T>;
  return make_tensor(const_cast<Element*>(data), dtype_of<Element>(), sizes);
}

// Tensors are read and written in double for references, generated inputs and comparisons. These functions are not for
// the hot path.

/// The element `offset` elements after the base, exactly as stored.
double read_element(const Tensor& tensor, int64_t offset);
/// Rounds to the storage format (to nearest even).
void write_element(const Tensor& tensor, int64_t offset, double value);

/// All elements, row-major, strides honoured.
std::vector<double> read_elements(const Tensor& tensor);
/// The elements below index `i` of dimension 0 (all of them for rank 1 and i = 0).
std::vector<double> read_row(const Tensor& tensor, int64_t i);
/// An integer of a rank-1 tensor.
int64_t read_index(const Tensor& tensor, int64_t i);

/// Independent normal values, the same for the same seed.
void fill_normal(const Tensor& tensor, double mean, double deviation, uint64_t seed);
/// Independent whole numbers of lo..hi.
void fill_uniform_int(const Tensor& tensor, int64_t lo, int64_t hi, uint64_t seed);

}  // namespace seqtile
