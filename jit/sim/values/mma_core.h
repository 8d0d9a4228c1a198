// jit/sim/values/mma_core.h -- the product at the heart of mma.sync and wgmma, in the register layout of the fragments.
// SPDX-License-Identifier: Apache-2.0
//
// Lane 4g+t holds rows g and g+8 and columns 2t and 2t+1 of an accumulator. So for all lanes at once
//   d(row half h, column parity e)[lane] += sum over k of  a[h][k][lane] * b[k][e][lane % 4]
// where a is spread over the four lanes of a row and b has four values that repeat. The accumulators stay in register
// layout; only the operands are spread out. A wgmma is a row of such blocks, with a spread once and b once per block.
// Products of 16-bit elements are exact in float, so fused and separate rounding give the same sums; so are the sums of
// 32 products of bytes.
#pragma once
#include <cstdint>

#include "jit/ptx/ptx_module.h"

namespace seqtile::sim {

constexpr int kMaxMmaK = 32;

struct SpreadA {
  alignas(64) float value[2][kMaxMmaK][32];
};
struct SpreadB {
  alignas(64) float value[kMaxMmaK][2][4];
};

struct MmaFunctions {
  /// d = c + a * b over `k` steps; c may be d.
  void (*multiply)(float* const* d, const float* const* c, const SpreadA& a, const SpreadB& b, int k);
  /// Four registers of 32 words each, k = 16 elements of bf16 (or f16).
  void (*spread_a_bf16)(const uint32_t* const* regs, SpreadA& a);
  void (*spread_a_f16)(const uint32_t* const* regs, SpreadA& a);
  /// Two registers.
  void (*spread_b_bf16)(const uint32_t* const* regs, SpreadB& b);
  void (*spread_b_f16)(const uint32_t* const* regs, SpreadB& b);
};

/// The copies for this CPU's vectors.
const MmaFunctions& mma_functions();

/// Any element type and k; registers as in an mma of that type. `num_regs` of A is 2 or 4, of B 1 or 2.
void spread_a(PtxType type, const uint32_t* const* regs, int num_regs, int k, SpreadA& a);
void spread_b(PtxType type, const uint32_t* const* regs, int num_regs, int k, SpreadB& b);

/// a becomes -a.
void negate(SpreadA& a, int k);

/// Contents of an accumulator's register: a float, two halves, or an integer whose sums wrap (s32) or saturate.
enum class Accumulator { f32, f16, s32, s32_saturated };
Accumulator accumulator_of(PtxType element, int accumulator_bytes, bool saturates);
/// d = c + a * b over registers of 32 lanes: four, two of f16. `c` null: zero; c may be d.
void multiply(Accumulator kind, uint32_t* const* d, const uint32_t* const* c, const SpreadA& a, const SpreadB& b,
              int k);

/// One element of a 4-byte word.
float mma_element(PtxType type, uint32_t word, int index);

}  // namespace seqtile::sim
