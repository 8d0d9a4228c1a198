// jit/base/dtype.h -- element types of tensors and tiles, and conversions of the 16-bit floats.
// SPDX-License-Identifier: Apache-2.0
//
// f16 and bf16 are storage formats: every kernel accumulates in f32. Conversions round to nearest even.
#pragma once
#include <cstdint>
#include <optional>
#include <string_view>

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

}  // namespace seqtile
