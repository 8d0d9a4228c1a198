// jit/base/dtype.cpp -- names and 16-bit float conversions.
// SPDX-License-Identifier: Apache-2.0
#include "seqtile/tensor.h"

#include <bit>
#include <cmath>
#include <iterator>
#include <utility>

namespace seqtile {
namespace {

constexpr std::string_view kNames[] = {"i1", "i8", "i16", "i32", "i64", "f16", "bf16", "f32", "f64"};

constexpr std::pair<std::string_view, DType> kAliases[] = {
    {"float32", DType::f32}, {"float", DType::f32},     {"float16", DType::f16},
    {"half", DType::f16},    {"bfloat16", DType::bf16}, {"float64", DType::f64},
    {"double", DType::f64},  {"int32", DType::i32},     {"int64", DType::i64},
};

}  // namespace

std::string_view dtype_name(DType dtype) {
  const auto index = static_cast<size_t>(dtype);
  return index < std::size(kNames) ? kNames[index] : "unknown";
}

std::optional<DType> parse_dtype(std::string_view name) {
  for (size_t i = 0; i < std::size(kNames); ++i)
    if (name == kNames[i]) return static_cast<DType>(i);
  for (const auto& [alias, dtype] : kAliases)
    if (name == alias) return dtype;
  return std::nullopt;
}

float bf16_to_f32(uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }

uint16_t f32_to_bf16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if (std::isnan(value))
    return static_cast<uint16_t>((bits >> 16) | 0x40);  // keep NaN quiet, never round it to infinity
  return static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

float f16_to_f32(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000) << 16;
  const uint32_t exponent = (bits >> 10) & 0x1f, mantissa = bits & 0x3ff;
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7f800000 | (mantissa << 13));
  if (exponent == 0) {  // zero or subnormal: the mantissa counts units of 2^-24
    const float magnitude = std::ldexp(static_cast<float>(mantissa), -24);
    return sign ? -magnitude : magnitude;
  }
  return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
}

uint16_t f32_to_f16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint16_t sign = static_cast<uint16_t>((bits >> 16) & 0x8000);
  if (std::isnan(value)) return sign | 0x7e00;
  const float magnitude = std::fabs(value);
  if (magnitude >= 65520.0f) return sign | 0x7c00;  // rounds to infinity
  if (magnitude < 6.103515625e-05f)                 // subnormal: nearbyint rounds half to even
    return sign | static_cast<uint16_t>(std::nearbyint(std::ldexp(magnitude, 24)));
  const uint32_t m = std::bit_cast<uint32_t>(magnitude);
  const uint32_t rounded = m + 0xfff + ((m >> 13) & 1);
  return sign | static_cast<uint16_t>((rounded - (112u << 23)) >> 13);
}

}  // namespace seqtile
