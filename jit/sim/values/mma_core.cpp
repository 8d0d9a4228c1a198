// jit/sim/values/mma_core.cpp -- the vector loops compiled for three vector widths, and the general spreading of
// operands.
// SPDX-License-Identifier: Apache-2.0
#include "jit/sim/values/mma_core.h"

#include <algorithm>

#include "jit/sim/values/lanes.h"

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>
#endif

// Vectors never cross a call that is not inlined, so their calling convention does not matter.
#pragma GCC diagnostic ignored "-Wpsabi"
#ifndef __clang__  // GCC 12 warns about the undefined upper halves inside its own intrinsics
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif

namespace seqtile::sim {
namespace {

typedef float AliasingFloat __attribute__((may_alias));

namespace base {
constexpr int kWidth = 4;
typedef float Four __attribute__((vector_size(16), may_alias));
inline Four repeat_four(const float* p) { return *reinterpret_cast<const Four*>(p); }
#define SEQTILE_SIM_LEVEL
#include "jit/sim/values/mma_level.inc"
#undef SEQTILE_SIM_LEVEL
}  // namespace base

#if defined(__x86_64__) && defined(__GNUC__)
namespace avx2 {
constexpr int kWidth = 8;
SEQTILE_SIM_AVX2 inline __m256 repeat_four(const float* p) {
  return _mm256_broadcast_ps(reinterpret_cast<const __m128*>(p));
}
#define SEQTILE_SIM_LEVEL SEQTILE_SIM_AVX2
#include "jit/sim/values/mma_level.inc"
#undef SEQTILE_SIM_LEVEL
}  // namespace avx2

namespace avx512 {
constexpr int kWidth = 16;
SEQTILE_SIM_AVX512 inline __m512 repeat_four(const float* p) { return _mm512_broadcast_f32x4(_mm_load_ps(p)); }
#define SEQTILE_SIM_LEVEL SEQTILE_SIM_AVX512
#include "jit/sim/values/mma_level.inc"
#undef SEQTILE_SIM_LEVEL
}  // namespace avx512
#endif

int element_bytes(PtxType type) { return ptx_type_bytes(type); }

}  // namespace

const MmaFunctions& mma_functions() {
#if defined(__x86_64__) && defined(__GNUC__)
  if (vector_level() == VectorLevel::avx512) return avx512::kFunctions;
  if (vector_level() == VectorLevel::avx2) return avx2::kFunctions;
#endif
  return base::kFunctions;
}

void negate(SpreadA& a, int k) {
  for (auto& half : a.value)
    for (int step = 0; step < k; ++step)
      for (float& value : half[step]) value = -value;
}

Accumulator accumulator_of(PtxType element, int accumulator_bytes, bool saturates) {
  if (element == PtxType::s8 || element == PtxType::u8)
    return saturates ? Accumulator::s32_saturated : Accumulator::s32;
  return accumulator_bytes == 2 ? Accumulator::f16 : Accumulator::f32;
}

void multiply(Accumulator kind, uint32_t* const* d, const uint32_t* const* c, const SpreadA& a, const SpreadB& b,
              int k) {
  alignas(64) static constexpr float kZeros[32] = {};
  alignas(64) float sums[4][32];
  float* to[4];
  const float* from[4];
  for (int r = 0; r < 4; ++r) {
    const bool is_plain = kind == Accumulator::f32;
    to[r] = is_plain ? reinterpret_cast<AliasingFloat*>(d[r]) : sums[r];
    from[r] = is_plain && c != nullptr ? reinterpret_cast<const AliasingFloat*>(c[r]) : kZeros;
    if (kind != Accumulator::f16 || c == nullptr) continue;
    for (int lane = 0; lane < 32; ++lane) sums[r][lane] = half_to_float(c[r >> 1][lane] >> (16 * (r & 1)) & 0xffff);
    from[r] = sums[r];
  }
  mma_functions().multiply(to, from, a, b, k);
  if (kind == Accumulator::f16) {
    for (int r = 0; r < 2; ++r)
      for (int lane = 0; lane < 32; ++lane)
        d[r][lane] = float_to_half(sums[2 * r][lane]) | float_to_half(sums[2 * r + 1][lane]) << 16;
  } else if (kind != Accumulator::f32) {
    for (int r = 0; r < 4; ++r)
      for (int lane = 0; lane < 32; ++lane) {
        int64_t sum = (c != nullptr ? static_cast<int32_t>(c[r][lane]) : 0) + static_cast<int64_t>(sums[r][lane]);
        if (kind == Accumulator::s32_saturated) sum = std::clamp<int64_t>(sum, INT32_MIN, INT32_MAX);
        d[r][lane] = static_cast<uint32_t>(sum);
      }
  }
}

float mma_element(PtxType type, uint32_t word, int index) {
  switch (type) {
    case PtxType::bf16: return bf16_to_float(word >> (16 * index) & 0xffff);
    case PtxType::f16: return half_to_float(word >> (16 * index) & 0xffff);
    case PtxType::e4m3: return e4m3_to_float(word >> (8 * index) & 0xff);
    case PtxType::e5m2: return e5m2_to_float(word >> (8 * index) & 0xff);
    case PtxType::s8: return static_cast<float>(static_cast<int8_t>(word >> (8 * index)));
    case PtxType::u8: return static_cast<float>(word >> (8 * index) & 0xff);
    default: return tf32_to_float(word);
  }
}

void spread_a(PtxType type, const uint32_t* const* regs, int num_regs, int k, SpreadA& a) {
  if (type == PtxType::bf16 && k == 16) return mma_functions().spread_a_bf16(regs, a);
  if (type == PtxType::f16 && k == 16) return mma_functions().spread_a_f16(regs, a);
  const int per_word = 4 / element_bytes(type), k_per_reg = 4 * per_word;
  for (int r = 0; r < num_regs; ++r)
    for (int lane = 0; lane < 32; ++lane)
      for (int j = 0; j < per_word; ++j) {
        const int step = (r >> 1) * k_per_reg + (lane & 3) * per_word + j;
        const float value = mma_element(type, regs[r][lane], j);
        for (int t = 0; t < 4; ++t) a.value[r & 1][step][(lane & ~3) + t] = value;
      }
}

void spread_b(PtxType type, const uint32_t* const* regs, int num_regs, int k, SpreadB& b) {
  if (type == PtxType::bf16 && k == 16) return mma_functions().spread_b_bf16(regs, b);
  if (type == PtxType::f16 && k == 16) return mma_functions().spread_b_f16(regs, b);
  const int per_word = 4 / element_bytes(type), k_per_reg = 4 * per_word;
  for (int r = 0; r < num_regs; ++r)
    for (int lane = 0; lane < 32; ++lane)
      for (int j = 0; j < per_word; ++j) {
        const int column = lane >> 2, step = r * k_per_reg + (lane & 3) * per_word + j;
        b.value[step][column & 1][column >> 1] = mma_element(type, regs[r][lane], j);
      }
}

}  // namespace seqtile::sim
