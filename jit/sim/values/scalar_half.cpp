// jit/sim/values/scalar_half.cpp -- f16, bf16 and their packed pairs: add sub mul fma min max neg abs ex2 tanh.
// SPDX-License-Identifier: Apache-2.0
//
// Each element is widened to float, computed and rounded once. That is exact rounding for add, sub and mul; fma goes
// through double, where the product is exact and the sum is rounded far below the last place of the result.
#include <cmath>
#include <limits>

#include "jit/sim/values/scalar.h"

namespace seqtile::sim {
namespace {

struct HalfFormat {
  SEQTILE_SIM_INLINE static float widen(uint32_t bits) { return half_to_float(bits); }
  SEQTILE_SIM_INLINE static uint32_t narrow(float value) { return float_to_half(value); }
};
struct BfloatFormat {
  SEQTILE_SIM_INLINE static float widen(uint32_t bits) { return bf16_to_float(bits); }
  SEQTILE_SIM_INLINE static uint32_t narrow(float value) { return float_to_bf16(value); }
};

/// Rounds to float so that a second rounding to 16 bits cannot go wrong: to odd.
inline float to_odd(double value) {
  const float nearest = static_cast<float>(value);
  if (static_cast<double>(nearest) == value || std::isnan(nearest) || std::isinf(nearest)) return nearest;
  uint32_t bits = std::bit_cast<uint32_t>(nearest);
  const bool is_too_large = std::fabs(static_cast<double>(nearest)) > std::fabs(value);
  if (is_too_large) --bits;
  return std::bit_cast<float>(bits | 1);
}

struct Add {
  SEQTILE_SIM_INLINE static float apply(float a, float b, float) { return a + b; }
};
struct Sub {
  SEQTILE_SIM_INLINE static float apply(float a, float b, float) { return a - b; }
};
struct Mul {
  SEQTILE_SIM_INLINE static float apply(float a, float b, float) { return a * b; }
};
struct Fma {
  static float apply(float a, float b, float c) { return to_odd(static_cast<double>(a) * b + c); }
};
struct FmaRelu {
  static float apply(float a, float b, float c) {
    const float value = Fma::apply(a, b, c);
    return value > 0 || value != value ? value : 0;
  }
};
struct Min {
  static float apply(float a, float b, float) {
    return a != a ? b : b != b ? a : a < b || (a == b && std::signbit(a)) ? a : b;
  }
};
struct Max {
  static float apply(float a, float b, float) {
    return a != a ? b : b != b ? a : a > b || (a == b && std::signbit(b)) ? a : b;
  }
};
struct MinNan {
  static float apply(float a, float b, float) {
    return a != a || b != b ? std::numeric_limits<float>::quiet_NaN() : Min::apply(a, b, 0);
  }
};
struct MaxNan {
  static float apply(float a, float b, float) {
    return a != a || b != b ? std::numeric_limits<float>::quiet_NaN() : Max::apply(a, b, 0);
  }
};
struct Ex2 {
  static float apply(float a, float, float) { return std::exp2(a); }
};
struct Tanh {
  static float apply(float a, float, float) { return std::tanh(a); }
};

/// Operates on both 16-bit elements of a word; of a single value the upper half is zero and is cleared again.
template <class Op, class Format, int operands, bool is_packed>
struct Elementwise {
  SEQTILE_SIM_INLINE static uint32_t one(uint32_t a, uint32_t b, uint32_t c) {
    return Format::narrow(Op::apply(Format::widen(a & 0xffff), Format::widen(b & 0xffff), Format::widen(c & 0xffff)));
  }
  SEQTILE_SIM_INLINE static void run(uint32_t* regs, const uint32_t* slots, uint32_t mask, uint32_t) {
    const Lanes<uint32_t> d(regs, slots[0]), a(regs, slots[1]);
    const Lanes<uint32_t> b(regs, slots[operands > 1 ? 2 : 1]), c(regs, slots[operands > 2 ? 3 : 1]);
    for_lanes(mask,
              SEQTILE_SIM_LANE(const uint32_t low = one(a[i], b[i], c[i]);
                               const uint32_t high = is_packed ? one(a[i] >> 16, b[i] >> 16, c[i] >> 16) << 16 : 0;
                               d.set(i, low | high);));
  }
};

template <class Op, int operands>
ScalarFn by_format(PtxType type) {
  switch (type) {
    case PtxType::f16: return plain<Elementwise<Op, HalfFormat, operands, false>>();
    case PtxType::f16x2: return select<Elementwise<Op, HalfFormat, operands, true>>();
    case PtxType::bf16: return plain<Elementwise<Op, BfloatFormat, operands, false>>();
    case PtxType::bf16x2: return select<Elementwise<Op, BfloatFormat, operands, true>>();
    default: return nullptr;
  }
}

/// neg and abs change sign bits only; aux: bit 0 abs, the sign bits above.
struct SignBits {
  SEQTILE_SIM_INLINE static void run(uint32_t* regs, const uint32_t* slots, uint32_t mask, uint32_t aux) {
    const Lanes<uint32_t> d(regs, slots[0]), a(regs, slots[1]);
    const uint32_t signs = aux & ~1u, invert = (aux & 1) ? 0 : signs;
    for_lanes(mask, SEQTILE_SIM_LANE(d.set(i, invert != 0 ? a[i] ^ invert : a[i] & ~signs)));
  }
};

ScalarForm form_of(const Opcode& op, PtxType type) {
  const std::string_view base = op.base();
  if (base == "add" && op.only({"rn"})) return {by_format<Add, 2>(type), 0, "www"};
  if (base == "sub" && op.only({"rn"})) return {by_format<Sub, 2>(type), 0, "www"};
  if (base == "mul" && op.only({"rn"})) return {by_format<Mul, 2>(type), 0, "www"};
  if (base == "fma" && op.only({"rn"})) return {by_format<Fma, 3>(type), 0, "wwww"};
  if (base == "fma" && op.only({"rn", "relu"})) return {by_format<FmaRelu, 3>(type), 0, "wwww"};
  if (base == "min" && op.only({})) return {by_format<Min, 2>(type), 0, "www"};
  if (base == "max" && op.only({})) return {by_format<Max, 2>(type), 0, "www"};
  if (base == "min" && op.only({"NaN"})) return {by_format<MinNan, 2>(type), 0, "www"};
  if (base == "max" && op.only({"NaN"})) return {by_format<MaxNan, 2>(type), 0, "www"};
  if (base == "ex2" && op.only({"approx", "ftz"})) return {by_format<Ex2, 1>(type), 0, "ww"};
  if (base == "tanh" && op.only({"approx"})) return {by_format<Tanh, 1>(type), 0, "ww"};
  const uint32_t signs = type == PtxType::f16x2 || type == PtxType::bf16x2 ? 0x80008000u : 0x8000u;
  if (base == "neg" && op.only({})) return {select<SignBits>(), signs, "ww"};
  if (base == "abs" && op.only({})) return {select<SignBits>(), signs | 1, "ww"};
  return {};
}

}  // namespace

std::optional<ScalarForm> resolve_half(const Opcode& op) {
  const PtxType type = op.type();
  if (type != PtxType::f16 && type != PtxType::f16x2 && type != PtxType::bf16 && type != PtxType::bf16x2) return {};
  const ScalarForm form = form_of(op, type);
  return form.run != nullptr ? std::optional(form) : std::nullopt;
}

}  // namespace seqtile::sim
