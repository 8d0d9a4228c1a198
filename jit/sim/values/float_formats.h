// jit/sim/values/float_formats.h -- half, bfloat16, tf32 and 8-bit floats to and from float, written so that loops
// vectorise.
// SPDX-License-Identifier: Apache-2.0
//
// Narrowing rounds to nearest even; a NaN becomes the canonical NaN that PTX names (0x7fff).
#pragma once
#include <bit>
#include <cstdint>

#if defined(__GNUC__)
#define SEQTILE_SIM_INLINE inline __attribute__((always_inline))
#else
#define SEQTILE_SIM_INLINE inline
#endif

namespace seqtile::sim {

SEQTILE_SIM_INLINE float bf16_to_float(uint32_t bits) { return std::bit_cast<float>(bits << 16); }

SEQTILE_SIM_INLINE uint32_t float_to_bf16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
  return (bits & 0x7fffffff) > 0x7f800000 ? 0x7fff : rounded;
}

/// The exponent is moved by a multiplication, which also normalises subnormals.
SEQTILE_SIM_INLINE float half_to_float(uint32_t bits) {
  const uint32_t magnitude = (bits & 0x7fff) << 13;
  const uint32_t scaled = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) * 0x1p112f);
  const uint32_t finite = (bits & 0x7c00) == 0x7c00 ? (magnitude | 0x7f800000) : scaled;
  return std::bit_cast<float>(finite | ((bits & 0x8000) << 16));
}

SEQTILE_SIM_INLINE uint32_t float_to_half(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = (bits >> 16) & 0x8000, magnitude = bits & 0x7fffffff;
  const uint32_t normal = (magnitude + 0xc8000fffu + ((magnitude >> 13) & 1)) >> 13;
  // 0.5's last bit is the last bit of a subnormal half: the addition rounds there
  const uint32_t subnormal = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) - 0x3f000000u;
  uint32_t result = magnitude < 0x38800000 ? subnormal : normal;
  result = magnitude >= 0x47800000 ? 0x7c00 : result;
  return magnitude > 0x7f800000 ? 0x7fff : (result | sign);
}

/// Drops the 13 bits that a tensor core ignores.
SEQTILE_SIM_INLINE float tf32_to_float(uint32_t bits) { return std::bit_cast<float>(bits & 0xffffe000u); }

/// 1-4-3, bias 7, no infinity.
inline float e4m3_to_float(uint32_t bits) {
  const uint32_t magnitude = bits & 0x7f;
  if (magnitude == 0x7f) return std::bit_cast<float>(0x7fffffffu);
  const float value = std::bit_cast<float>(magnitude << 20) * 0x1p120f;
  return (bits & 0x80) != 0 ? -value : value;
}

/// 1-5-2: the upper byte of a half.
inline float e5m2_to_float(uint32_t bits) { return half_to_float((bits & 0xff) << 8); }

/// Saturates to the largest finite value, as cvt...satfinite does. `mantissa` is 3 for e4m3, 2 for e5m2.
uint32_t float_to_fp8(float value, int mantissa);

}  // namespace seqtile::sim
