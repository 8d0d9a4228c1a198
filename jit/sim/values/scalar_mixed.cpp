// jit/sim/values/scalar_mixed.cpp -- pairs of f32 in one 64-bit register, sums in f32 of 16-bit floats, min and max of
// three.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <limits>

#include "jit/sim/values/scalar.h"

namespace seqtile::sim {
namespace {

enum class Arithmetic : uint32_t { add, sub, mul, fma };
constexpr std::string_view kNames[] = {"add", "sub", "mul", "fma"};
constexpr uint32_t kFlush = 1 << 8, kSaturate = 1 << 9;

float flush(float value, uint32_t aux) {
  return (aux & kFlush) != 0 && std::fabs(value) < 0x1p-126f ? std::copysign(0.0f, value) : value;
}

float compute(uint32_t aux, float a, float b, float c) {
  a = flush(a, aux), b = flush(b, aux), c = flush(c, aux);
  float result = 0;
  switch (static_cast<Arithmetic>(aux & 0xff)) {
    case Arithmetic::add: result = a + b; break;
    case Arithmetic::sub: result = a - b; break;
    case Arithmetic::mul: result = a * b; break;
    case Arithmetic::fma: result = std::fma(a, b, c); break;
  }
  result = flush(result, aux);
  return (aux & kSaturate) == 0 ? result : result > 0 ? std::min(result, 1.0f) : 0.0f;
}

/// aux: the operation and kFlush. `sources` is 2 or 3.
template <int sources>
struct Pairs {
  static float half(uint64_t bits, int which) {
    return std::bit_cast<float>(static_cast<uint32_t>(bits >> (32 * which)));
  }
  static void run(uint32_t* regs, const uint32_t* slots, uint32_t mask, uint32_t aux) {
    const Lanes<uint64_t> d(regs, slots[0]), a(regs, slots[1]), b(regs, slots[2]), c(regs, slots[sources]);
    for_lanes(mask, [&](int i) {
      uint64_t result = 0;
      for (int which = 0; which < 2; ++which) {
        const float value = compute(aux, half(a[i], which), half(b[i], which), half(c[i], which));
        result |= uint64_t{std::bit_cast<uint32_t>(value)} << (32 * which);
      }
      d.set(i, result);
    });
  }
};

/// add and sub: a has 16 bits; fma: a and b have.
template <int sources, bool is_bfloat>
struct Mixed {
  static float widen(uint16_t bits) { return is_bfloat ? bf16_to_float(bits) : half_to_float(bits); }
  static void run(uint32_t* regs, const uint32_t* slots, uint32_t mask, uint32_t aux) {
    const Lanes<float> d(regs, slots[0]), last(regs, slots[sources]);
    const Lanes<uint16_t> a(regs, slots[1]), b(regs, slots[2]);
    for_lanes(mask, [&](int i) {
      if constexpr (sources == 2) d.set(i, compute(aux, widen(a[i]), last[i], 0));
      else d.set(i, compute(aux, widen(a[i]), widen(b[i]), last[i]));
    });
  }
};

constexpr uint32_t kMax = 1, kNan = 2, kAbs = 4;

struct OfThree {
  static float choose(float a, float b, uint32_t aux) {
    if (a != a || b != b) return (aux & kNan) != 0 ? std::numeric_limits<float>::quiet_NaN() : a != a ? b : a;
    const bool is_less = a < b || (a == b && std::signbit(a) && !std::signbit(b));
    return is_less == ((aux & kMax) == 0) ? a : b;
  }
  static void run(uint32_t* regs, const uint32_t* slots, uint32_t mask, uint32_t aux) {
    const Lanes<float> d(regs, slots[0]), a(regs, slots[1]), b(regs, slots[2]), c(regs, slots[3]);
    const auto value = [&](float x) { return flush((aux & kAbs) != 0 ? std::fabs(x) : x, aux); };
    for_lanes(mask, [&](int i) { d.set(i, choose(choose(value(a[i]), value(b[i]), aux), value(c[i]), aux)); });
  }
};

std::optional<ScalarForm> pairs(const Opcode& op, uint32_t what) {
  if (!op.only({"rn", "ftz"})) return {};
  const uint32_t aux = what | (op.has("ftz") ? kFlush : 0);
  const bool is_fma = static_cast<Arithmetic>(what) == Arithmetic::fma;
  return ScalarForm{is_fma ? plain<Pairs<3>>() : plain<Pairs<2>>(), aux, is_fma ? "xxxx" : "xxx"};
}

std::optional<ScalarForm> mixed(const Opcode& op, uint32_t what) {
  if (!op.only({"rn", "sat"}, 2) || static_cast<Arithmetic>(what) == Arithmetic::mul) return {};
  const uint32_t aux = what | (op.has("sat") ? kSaturate : 0);
  const bool is_fma = static_cast<Arithmetic>(what) == Arithmetic::fma, is_bfloat = op.type() == PtxType::bf16;
  if (is_fma) return ScalarForm{is_bfloat ? plain<Mixed<3, true>>() : plain<Mixed<3, false>>(), aux, "wwww"};
  return ScalarForm{is_bfloat ? plain<Mixed<2, true>>() : plain<Mixed<2, false>>(), aux, "www"};
}

}  // namespace

std::optional<ScalarForm> resolve_mixed(const Opcode& op, size_t num_operands) {
  const PtxType type = op.type();
  if ((op.base() == "min" || op.base() == "max") && type == PtxType::f32 && num_operands == 4) {
    if (!op.only({"ftz", "NaN", "abs"})) return {};
    return ScalarForm{plain<OfThree>(),
                      (op.base() == "max" ? kMax : 0) | (op.has("NaN") ? kNan : 0) | (op.has("abs") ? kAbs : 0) |
                          (op.has("ftz") ? kFlush : 0),
                      "wwww"};
  }
  const auto* const name = std::find(std::begin(kNames), std::end(kNames), op.base());
  if (name == std::end(kNames)) return {};
  const auto what = static_cast<uint32_t>(name - std::begin(kNames));
  if (type == PtxType::f32x2) return pairs(op, what);
  const bool is_mixed =
      (type == PtxType::f16 || type == PtxType::bf16) && op.parts.size() > 2 && op.parts[op.parts.size() - 2] == "f32";
  return is_mixed ? mixed(op, what) : std::nullopt;
}

}  // namespace seqtile::sim
