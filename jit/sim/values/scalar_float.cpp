// jit/sim/values/scalar_float.cpp -- f32 and f64: add sub mul fma div min max neg abs sqrt rcp rsqrt ex2 lg2 sin cos
// tanh.
// SPDX-License-Identifier: Apache-2.0
//
// Round to nearest only: scalar_rounded.cpp has the other modes. The `.approx` functions are
// computed to about one unit in the last place of f32, better than a GPU does: results differ from a device's within
// the bounds that PTX states, so tests compare them with a tolerance.
#include <cmath>
#include <limits>

#include "jit/sim/values/scalar.h"

namespace seqtile::sim {
namespace {

struct Add {
  template <class T>
  SEQTILE_SIM_INLINE static T apply(T a, T b) {
    return a + b;
  }
};
struct Sub {
  template <class T>
  SEQTILE_SIM_INLINE static T apply(T a, T b) {
    return a - b;
  }
};
struct Mul {
  template <class T>
  SEQTILE_SIM_INLINE static T apply(T a, T b) {
    return a * b;
  }
};
struct Fma {
  SEQTILE_SIM_INLINE static float apply(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
  SEQTILE_SIM_INLINE static double apply(double a, double b, double c) { return __builtin_fma(a, b, c); }
};
struct Div {
  template <class T>
  SEQTILE_SIM_INLINE static T apply(T a, T b) {
    return a / b;
  }
};
/// The operand that is a number wins over a NaN; -0 is below +0.
struct Min {
  template <class T>
  SEQTILE_SIM_INLINE static T apply(T a, T b) {
    const T smaller = a < b || (a == b && std::signbit(a)) ? a : b;
    return a != a ? b : b != b ? a : smaller;
  }
};
struct Max {
  template <class T>
  SEQTILE_SIM_INLINE static T apply(T a, T b) {
    const T larger = a > b || (a == b && std::signbit(b)) ? a : b;
    return a != a ? b : b != b ? a : larger;
  }
};
struct MinNan {
  template <class T>
  SEQTILE_SIM_INLINE static T apply(T a, T b) {
    return a != a || b != b ? std::numeric_limits<T>::quiet_NaN() : Min::apply(a, b);
  }
};
struct MaxNan {
  template <class T>
  SEQTILE_SIM_INLINE static T apply(T a, T b) {
    return a != a || b != b ? std::numeric_limits<T>::quiet_NaN() : Max::apply(a, b);
  }
};
struct Neg {
  template <class T>
  SEQTILE_SIM_INLINE static T apply(T a) {
    return -a;
  }
};
struct Abs {
  template <class T>
  SEQTILE_SIM_INLINE static T apply(T a) {
    return a < 0 || (a == 0 && std::signbit(a)) ? -a : a;
  }
};
struct Sqrt {
  template <class T>
  SEQTILE_SIM_INLINE static T apply(T a) {
    return std::sqrt(a);
  }
};
struct Rcp {
  template <class T>
  SEQTILE_SIM_INLINE static T apply(T a) {
    return T(1) / a;
  }
};
struct Rsqrt {
  template <class T>
  SEQTILE_SIM_INLINE static T apply(T a) {
    return T(1) / std::sqrt(a);
  }
};

/// 2^x: the integer part goes to the exponent, a polynomial of degree 7 takes the rest in [-0.5, 0.5].
struct Ex2 {
  SEQTILE_SIM_INLINE static float apply(float x) {
    const float clamped = x < -150.0f ? -150.0f : x > 129.0f ? 129.0f : x;
    const float shifted = clamped + 12582912.0f;  // 1.5 * 2^23: the integer part lands in the low bits
    const float whole = shifted - 12582912.0f;
    const float f = clamped - whole;
    float p = 1.52527338e-5f;
    p = p * f + 1.54035304e-4f;
    p = p * f + 1.33335581e-3f;
    p = p * f + 9.61812911e-3f;
    p = p * f + 5.55041087e-2f;
    p = p * f + 2.40226507e-1f;
    p = p * f + 6.93147181e-1f;
    p = p * f + 1.0f;
    // in two factors: neither leaves the range of normal numbers
    const int32_t exponent = static_cast<int32_t>(whole == whole ? whole : 0.0f), half = exponent >> 1;
    const float first = std::bit_cast<float>((half + 127) << 23);
    const float second = std::bit_cast<float>((exponent - half + 127) << 23);
    const float result = p * first * second;
    return x != x ? x : result;
  }
};
struct Lg2 {
  static float apply(float a) { return std::log2(a); }
};
struct Sin {
  static float apply(float a) { return std::sin(a); }
};
struct Cos {
  static float apply(float a) { return std::cos(a); }
};
struct Tanh {
  static float apply(float a) { return std::tanh(a); }
};
struct CopySign {  // the sign of a, the magnitude of b
  template <class T>
  SEQTILE_SIM_INLINE static T apply(T a, T b) {
    return std::copysign(b, a);
  }
};

SEQTILE_SIM_INLINE float flush(float value) {
  return __builtin_fabsf(value) < 0x1p-126f ? __builtin_copysignf(0.0f, value) : value;
}

/// `.ftz`: subnormal operands and results count as zero.
template <class Op>
struct Flushed {
  SEQTILE_SIM_INLINE static float apply(float a) { return flush(Op::apply(flush(a))); }
  SEQTILE_SIM_INLINE static float apply(float a, float b) { return flush(Op::apply(flush(a), flush(b))); }
  SEQTILE_SIM_INLINE static float apply(float a, float b, float c) {
    return flush(Op::apply(flush(a), flush(b), flush(c)));
  }
};

SEQTILE_SIM_INLINE float saturate(float value) { return value > 0 ? (value < 1 ? value : 1.0f) : 0.0f; }

template <class Op>
struct Saturated {
  SEQTILE_SIM_INLINE static float apply(float a, float b) { return saturate(Op::apply(a, b)); }
  SEQTILE_SIM_INLINE static float apply(float a, float b, float c) { return saturate(Op::apply(a, b, c)); }
};

enum class Arity { one, two, three };

template <class Op, class T, Arity arity>
ScalarFn of_arity() {
  if constexpr (arity == Arity::one) return select<Unary<Op, T, T>>();
  else if constexpr (arity == Arity::two) return select<Binary<Op, T, T>>();
  else return select<Ternary<Op, T, T>>();
}

template <class Op, Arity arity>
ScalarFn f32_or_f64(const Opcode& op) {
  const PtxType type = op.type();
  if (type == PtxType::f64) return op.has("ftz") || op.has("sat") ? nullptr : of_arity<Op, double, arity>();
  if (type != PtxType::f32) return nullptr;
  if constexpr (arity != Arity::one)
    if (op.has("sat")) return op.has("ftz") ? nullptr : of_arity<Saturated<Op>, float, arity>();
  return op.has("ftz") ? of_arity<Flushed<Op>, float, arity>() : of_arity<Op, float, arity>();
}

template <class Op>
ScalarFn f32_only(const Opcode& op) {
  if (op.type() != PtxType::f32) return nullptr;
  return op.has("ftz") ? plain<Unary<Flushed<Op>, float, float>>() : plain<Unary<Op, float, float>>();
}

ScalarFn two_operands(const Opcode& op) {
  const std::string_view base = op.base();
  if (base == "add" && op.only({"rn", "ftz", "sat"})) return f32_or_f64<Add, Arity::two>(op);
  if (base == "sub" && op.only({"rn", "ftz", "sat"})) return f32_or_f64<Sub, Arity::two>(op);
  if (base == "mul" && op.only({"rn", "ftz", "sat"})) return f32_or_f64<Mul, Arity::two>(op);
  if (base == "div" && op.only({"rn", "approx", "full", "ftz"})) return f32_or_f64<Div, Arity::two>(op);
  if (base == "min" && op.only({"ftz"})) return f32_or_f64<Min, Arity::two>(op);
  if (base == "max" && op.only({"ftz"})) return f32_or_f64<Max, Arity::two>(op);
  if (base == "min" && op.only({"ftz", "NaN"})) return f32_or_f64<MinNan, Arity::two>(op);
  if (base == "max" && op.only({"ftz", "NaN"})) return f32_or_f64<MaxNan, Arity::two>(op);
  if (base == "copysign" && op.only({})) return f32_or_f64<CopySign, Arity::two>(op);
  return nullptr;
}

/// rcp.approx.ftz.f64 and rsqrt.approx.ftz.f64, with which divisions and roots of f64 begin.
bool is_double_approximation(const Opcode& op) {
  return op.type() == PtxType::f64 && (op.base() == "rcp" || op.base() == "rsqrt") && op.has("approx") &&
         op.only({"approx", "ftz"});
}

ScalarFn one_operand(const Opcode& op) {
  const std::string_view base = op.base();
  if (base == "neg" && op.only({"ftz"})) return f32_or_f64<Neg, Arity::one>(op);
  if (base == "abs" && op.only({"ftz"})) return f32_or_f64<Abs, Arity::one>(op);
  if (base == "sqrt" && op.only({"rn", "approx", "ftz"})) return f32_or_f64<Sqrt, Arity::one>(op);
  if (is_double_approximation(op))
    return base == "rcp" ? plain<Unary<Rcp, double, double>>() : plain<Unary<Rsqrt, double, double>>();
  if (base == "rcp" && op.only({"rn", "approx", "ftz"})) return f32_or_f64<Rcp, Arity::one>(op);
  if (base == "rsqrt" && op.only({"approx", "ftz"})) return f32_or_f64<Rsqrt, Arity::one>(op);
  if (!op.only({"approx", "ftz"}) || op.type() != PtxType::f32) return nullptr;
  if (base == "ex2")
    return op.has("ftz") ? select<Unary<Flushed<Ex2>, float, float>>() : select<Unary<Ex2, float, float>>();
  if (base == "lg2") return f32_only<Lg2>(op);
  if (base == "sin") return f32_only<Sin>(op);
  if (base == "cos") return f32_only<Cos>(op);
  return base == "tanh" ? f32_only<Tanh>(op) : nullptr;
}

}  // namespace

std::optional<ScalarForm> resolve_float(const Opcode& op) {
  const PtxType type = op.type();
  if (type != PtxType::f32 && type != PtxType::f64) return {};
  if (const ScalarFn run = two_operands(op)) return ScalarForm{run, 0, operand_letters(type, 3)};
  if (const ScalarFn run = one_operand(op)) return ScalarForm{run, 0, operand_letters(type, 2)};
  const bool is_fma = (op.base() == "fma" || op.base() == "mad") && op.only({"rn", "ftz", "sat"});
  const ScalarFn run = is_fma ? f32_or_f64<Fma, Arity::three>(op) : nullptr;
  return run != nullptr ? std::optional(ScalarForm{run, 0, operand_letters(type, 4)}) : std::nullopt;
}

}  // namespace seqtile::sim
