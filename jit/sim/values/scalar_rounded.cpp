// jit/sim/values/scalar_rounded.cpp -- f32 and f64 arithmetic that is rounded toward zero, down or up.
// SPDX-License-Identifier: Apache-2.0
//
// The host's own rounding mode is set around each operation. Volatile values keep the compiler from moving the
// operation away from the two changes of the mode.
#include <algorithm>
#include <cfenv>
#include <cmath>

#include "jit/sim/values/scalar.h"

namespace seqtile::sim {
namespace {

enum class Arithmetic : uint8_t { add, sub, mul, fma, div, rcp, sqrt };
constexpr std::string_view kNames[] = {"add", "sub", "mul", "fma", "div", "rcp", "sqrt"};
constexpr uint32_t kFlush = 1 << 16, kSaturate = 1 << 17;

template <class T>
T compute(Arithmetic what, volatile T& a, volatile T& b, volatile T& c) {
  switch (what) {
    case Arithmetic::add: return a + b;
    case Arithmetic::sub: return a - b;
    case Arithmetic::mul: return a * b;
    case Arithmetic::fma: return std::fma(T(a), T(b), T(c));
    case Arithmetic::div: return a / b;
    case Arithmetic::rcp: return T(1) / a;
    default: return std::sqrt(T(a));
  }
}

int host_mode(uint32_t aux) {
  static constexpr int kModes[] = {FE_TOWARDZERO, FE_DOWNWARD, FE_UPWARD};
  return kModes[aux & 3];
}

template <class T>
T flush(T value, uint32_t aux) {
  return (aux & kFlush) != 0 && std::fabs(value) < T(0x1p-126) ? std::copysign(T(0), value) : value;
}

/// aux: the rounding, the operation << 8, kFlush and kSaturate.
template <class T, int sources>
struct Rounded {
  static void run(uint32_t* regs, const uint32_t* slots, uint32_t mask, uint32_t aux) {
    const Lanes<T> d(regs, slots[0]), x(regs, slots[1]), y(regs, slots[sources > 1 ? 2 : 1]),
        z(regs, slots[sources > 2 ? 3 : 1]);
    for_lanes(mask, [&](int i) {
      volatile T a = flush(x[i], aux), b = flush(y[i], aux), c = flush(z[i], aux);
      std::fesetround(host_mode(aux));
      volatile T result = compute<T>(static_cast<Arithmetic>(aux >> 8 & 0xff), a, b, c);
      std::fesetround(FE_TONEAREST);
      T value = flush(T(result), aux);
      if ((aux & kSaturate) != 0) value = value > 0 ? std::min(value, T(1)) : T(0);
      d.set(i, value);
    });
  }
};

template <class T>
ScalarFn by_sources(int sources) {
  return sources == 1 ? plain<Rounded<T, 1>>() : sources == 2 ? plain<Rounded<T, 2>>() : plain<Rounded<T, 3>>();
}

}  // namespace

std::optional<ScalarForm> resolve_rounded(const Opcode& op) {
  const PtxType type = op.type();
  const std::string_view base = op.base() == "mad" ? "fma" : op.base();
  const auto* const name = std::find(std::begin(kNames), std::end(kNames), base);
  const std::string_view mode = op.parts.size() > 2 ? op.parts[1] : "";
  const bool is_directed = mode == "rz" || mode == "rm" || mode == "rp";
  if (name == std::end(kNames) || !is_directed || (type != PtxType::f32 && type != PtxType::f64)) return {};
  if (!op.only({mode, "ftz", "sat"}) || (type == PtxType::f64 && (op.has("ftz") || op.has("sat")))) return {};
  const auto what = static_cast<Arithmetic>(name - std::begin(kNames));
  if (op.has("sat") && what > Arithmetic::fma) return {};
  const int sources = what == Arithmetic::fma ? 3 : what < Arithmetic::rcp ? 2 : 1;
  const uint32_t aux = (mode == "rz"   ? 0u
                        : mode == "rm" ? 1u
                                       : 2u) |
                       static_cast<uint32_t>(what) << 8 | (op.has("ftz") ? kFlush : 0) |
                       (op.has("sat") ? kSaturate : 0);
  return ScalarForm{type == PtxType::f32 ? by_sources<float>(sources) : by_sources<double>(sources), aux,
                    operand_letters(type, sources + 1)};
}

}  // namespace seqtile::sim
