// jit/sim/values/scalar_convert.cpp -- cvt between all integer and float types, packed narrowing, cvta.
// SPDX-License-Identifier: Apache-2.0
//
// The pairs that compilers emit in loops have functions of their own. Every other pair goes through one general
// function: a source is read as a 64-bit integer or as a double (both exact for every type that fits), rounded,
// saturated, written.
#include <algorithm>
#include <cfenv>
#include <cmath>
#include <limits>

#include "jit/sim/values/scalar.h"

namespace seqtile::sim {
namespace {

enum class Rounding : uint8_t { none, nearest, zero, down, up };

struct General {
  PtxType to = PtxType::none, from = PtxType::none;
  Rounding rounding = Rounding::none;
  bool to_integral = false, saturate = false, flush = false, relu = false, wide_to = false, wide_from = false;

  uint32_t pack() const {
    return static_cast<uint32_t>(to) | static_cast<uint32_t>(from) << 8 | static_cast<uint32_t>(rounding) << 16 |
           uint32_t{to_integral} << 20 | uint32_t{saturate} << 21 | uint32_t{flush} << 22 | uint32_t{relu} << 23 |
           uint32_t{wide_to} << 24 | uint32_t{wide_from} << 25;
  }
  static General unpack(uint32_t aux) {
    return {static_cast<PtxType>(aux & 0xff),
            static_cast<PtxType>(aux >> 8 & 0xff),
            static_cast<Rounding>(aux >> 16 & 0xf),
            (aux >> 20 & 1) != 0,
            (aux >> 21 & 1) != 0,
            (aux >> 22 & 1) != 0,
            (aux >> 23 & 1) != 0,
            (aux >> 24 & 1) != 0,
            (aux >> 25 & 1) != 0};
  }
};

bool is_signed(PtxType type) {
  return type == PtxType::s8 || type == PtxType::s16 || type == PtxType::s32 || type == PtxType::s64;
}
bool is_unsigned(PtxType type) {
  return type == PtxType::u8 || type == PtxType::u16 || type == PtxType::u32 || type == PtxType::u64;
}
bool is_integer(PtxType type) { return is_signed(type) || is_unsigned(type); }
bool is_float(PtxType type) {
  return type == PtxType::f16 || type == PtxType::bf16 || type == PtxType::f32 || type == PtxType::f64 ||
         type == PtxType::tf32;
}

int64_t read_integer(uint64_t bits, PtxType type) {
  const int unused = 64 - 8 * ptx_type_bytes(type);
  if (is_signed(type)) return static_cast<int64_t>(bits << unused) >> unused;
  return static_cast<int64_t>(bits << unused >> unused);
}

double read_float(uint64_t bits, PtxType type) {
  switch (type) {
    case PtxType::f16: return half_to_float(static_cast<uint32_t>(bits) & 0xffff);
    case PtxType::bf16: return bf16_to_float(static_cast<uint32_t>(bits) & 0xffff);
    case PtxType::f64: return std::bit_cast<double>(bits);
    default: return std::bit_cast<float>(static_cast<uint32_t>(bits));
  }
}

double round_integral(double value, Rounding rounding) {
  switch (rounding) {
    case Rounding::zero: return std::trunc(value);
    case Rounding::down: return std::floor(value);
    case Rounding::up: return std::ceil(value);
    default: return std::nearbyint(value);
  }
}

/// `value` rounded to `mantissa` bits after the leading one, exponents from `lowest` on (below: subnormal steps).
double round_mantissa(double value, int mantissa, int lowest, Rounding rounding) {
  if (value == 0 || !std::isfinite(value)) return value;
  const int shift = mantissa - std::max(std::ilogb(value), lowest);
  const double scaled = std::ldexp(value, shift);
  return std::ldexp(round_integral(scaled, rounding), -shift);
}

uint64_t write_float(double value, const General& how) {
  if (how.relu && !(value > 0) && !std::isnan(value)) value = 0;
  if (how.saturate) value = value > 0 ? std::min(value, 1.0) : 0.0;
  switch (how.to) {
    case PtxType::f64: return std::bit_cast<uint64_t>(value);
    case PtxType::f32: {
      float result = static_cast<float>(round_mantissa(value, 23, -126, how.rounding));
      if (how.flush && std::fabs(result) < 0x1p-126f) result = std::copysign(0.0f, result);
      return std::bit_cast<uint32_t>(result);
    }
    case PtxType::tf32:
      return std::bit_cast<uint32_t>(static_cast<float>(round_mantissa(value, 10, -126, how.rounding)));
    case PtxType::f16: return float_to_half(static_cast<float>(round_mantissa(value, 10, -14, how.rounding)));
    default: return float_to_bf16(static_cast<float>(round_mantissa(value, 7, -126, how.rounding)));
  }
}

/// Float to integer saturates always; a NaN becomes 0.
uint64_t float_to_integer(double value, const General& how) {
  if (std::isnan(value)) return 0;
  value = round_integral(value, how.rounding);
  const int bits = 8 * ptx_type_bytes(how.to);
  const double top = std::ldexp(1.0, is_signed(how.to) ? bits - 1 : bits);
  const double bottom = is_signed(how.to) ? -top : 0;
  if (value >= top) return is_signed(how.to) ? (uint64_t{1} << (bits - 1)) - 1 : ~uint64_t{0} >> (64 - bits);
  if (value <= bottom) return is_signed(how.to) ? uint64_t{0} - (uint64_t{1} << (bits - 1)) : 0;
  return value < 0 ? static_cast<uint64_t>(static_cast<int64_t>(value)) : static_cast<uint64_t>(value);
}

uint64_t integer_to_integer(int64_t value, const General& how) {
  if (!how.saturate) return static_cast<uint64_t>(value);
  const int bits = 8 * ptx_type_bytes(how.to);
  const bool is_large_unsigned = how.from == PtxType::u64 && value < 0;
  const int64_t top =
      bits == 64 ? std::numeric_limits<int64_t>::max() : (int64_t{1} << (is_signed(how.to) ? bits - 1 : bits)) - 1;
  const int64_t bottom = is_signed(how.to) ? -top - 1 : 0;
  return static_cast<uint64_t>(is_large_unsigned ? top : std::clamp(value, bottom, top));
}

uint64_t convert(uint64_t bits, const General& how) {
  if (is_integer(how.from)) {
    const int64_t value = read_integer(bits, how.from);
    if (is_integer(how.to)) return integer_to_integer(value, how);
    // a double holds 53 bits: round a 64-bit integer to f32 directly
    if (how.to == PtxType::f32 && (how.rounding == Rounding::nearest || how.rounding == Rounding::none))
      return std::bit_cast<uint32_t>(how.from == PtxType::u64 ? static_cast<float>(bits) : static_cast<float>(value));
    return write_float(how.from == PtxType::u64 ? static_cast<double>(bits) : static_cast<double>(value), how);
  }
  double value = read_float(bits, how.from);
  if (how.flush && how.from == PtxType::f32 && std::fabs(value) < 0x1p-126) value = std::copysign(0.0, value);
  if (is_integer(how.to)) return float_to_integer(value, how);
  return write_float(how.to_integral ? round_integral(value, how.rounding) : value, how);
}

struct ConvertAny {
  static void run(uint32_t* regs, const uint32_t* slots, uint32_t mask, uint32_t aux) {
    const General how = General::unpack(aux);
    for (uint32_t left = mask; left != 0; left &= left - 1) {
      const int lane = std::countr_zero(left);
      const uint64_t bits =
          how.wide_from ? Lanes<uint64_t>(regs, slots[1])[lane] : Lanes<uint32_t>(regs, slots[1])[lane];
      uint64_t result = convert(bits, how);
      if (is_integer(how.to)) result = static_cast<uint64_t>(read_integer(result, how.to));
      if (how.wide_to) Lanes<uint64_t>(regs, slots[0]).set(lane, result);
      else
        Lanes<uint32_t>(regs, slots[0])
            .set(lane, ptx_type_bytes(how.to) == 2 ? result & 0xffff : static_cast<uint32_t>(result));
    }
  }
};

struct Cast {
  template <class D, class S>
  struct To {
    SEQTILE_SIM_INLINE static D apply(S value) { return static_cast<D>(value); }
  };
};
struct FromBfloat {
  SEQTILE_SIM_INLINE static float apply(uint16_t bits) { return bf16_to_float(bits); }
};
struct FromHalf {
  SEQTILE_SIM_INLINE static float apply(uint16_t bits) { return half_to_float(bits); }
};
struct ToBfloat {
  SEQTILE_SIM_INLINE static uint32_t apply(float value) { return float_to_bf16(value); }
};
struct ToHalf {
  SEQTILE_SIM_INLINE static uint32_t apply(float value) { return float_to_half(value); }
};
struct PackBfloat {
  SEQTILE_SIM_INLINE static uint32_t apply(float high, float low) {
    return float_to_bf16(high) << 16 | float_to_bf16(low);
  }
};
struct PackHalf {
  SEQTILE_SIM_INLINE static uint32_t apply(float high, float low) {
    return float_to_half(high) << 16 | float_to_half(low);
  }
};
SEQTILE_SIM_INLINE float relu(float value) { return value > 0 || value != value ? value : 0.0f; }
struct PackBfloatRelu {
  SEQTILE_SIM_INLINE static uint32_t apply(float high, float low) { return PackBfloat::apply(relu(high), relu(low)); }
};
struct PackHalfRelu {
  SEQTILE_SIM_INLINE static uint32_t apply(float high, float low) { return PackHalf::apply(relu(high), relu(low)); }
};
template <int mantissa>
struct PackFp8 {
  static uint32_t apply(float high, float low) {
    return float_to_fp8(high, mantissa) << 8 | float_to_fp8(low, mantissa);
  }
};
template <int mantissa>
struct UnpackFp8 {
  static uint32_t apply(uint16_t bits) {
    const auto widen = [](uint32_t b) { return float_to_half(mantissa == 3 ? e4m3_to_float(b) : e5m2_to_float(b)); };
    return widen(bits >> 8) << 16 | widen(bits & 0xff);
  }
};

template <class D, class S>
ScalarFn cast() {
  return select<Unary<Cast::To<D, S>, D, S>>();
}

/// Pairs that stand in loops; null for the general function.
ScalarFn frequent_pair(const General& how) {
  if (how.saturate || how.flush || how.relu || how.to_integral) return nullptr;
  const auto is = [&](PtxType to, PtxType from) { return how.to == to && how.from == from; };
  if (!how.wide_from && how.wide_to) {
    if (is(PtxType::s64, PtxType::s32)) return cast<int64_t, int32_t>();
    if (is(PtxType::u64, PtxType::u32)) return cast<uint64_t, uint32_t>();
  }
  if (how.wide_from && !how.wide_to &&
      (is(PtxType::u32, PtxType::u64) || is(PtxType::s32, PtxType::s64) || is(PtxType::u32, PtxType::s64)))
    return cast<uint32_t, uint64_t>();
  if (how.wide_from || how.wide_to) return nullptr;
  if (is(PtxType::u32, PtxType::u16)) return cast<uint32_t, uint16_t>();
  if (is(PtxType::s32, PtxType::s16)) return cast<int32_t, int16_t>();
  if (is(PtxType::u16, PtxType::u32)) return cast<uint16_t, uint32_t>();
  if (is(PtxType::f32, PtxType::bf16)) return select<Unary<FromBfloat, float, uint16_t>>();
  if (is(PtxType::f32, PtxType::f16)) return select<Unary<FromHalf, float, uint16_t>>();
  if (how.rounding != Rounding::nearest) return nullptr;
  if (is(PtxType::bf16, PtxType::f32)) return select<Unary<ToBfloat, uint32_t, float>>();
  if (is(PtxType::f16, PtxType::f32)) return select<Unary<ToHalf, uint32_t, float>>();
  if (is(PtxType::f32, PtxType::s32)) return cast<float, int32_t>();
  return is(PtxType::f32, PtxType::u32) ? cast<float, uint32_t>() : nullptr;
}

bool read_modifiers(const Opcode& op, General& how) {
  for (size_t i = 1; i + 2 < op.parts.size(); ++i) {
    const std::string_view part = op.parts[i];
    how.to_integral |= part == "rni" || part == "rzi" || part == "rmi" || part == "rpi";
    if (part == "rn" || part == "rni" || part == "rna") how.rounding = Rounding::nearest;
    else if (part == "rz" || part == "rzi") how.rounding = Rounding::zero;
    else if (part == "rm" || part == "rmi") how.rounding = Rounding::down;
    else if (part == "rp" || part == "rpi") how.rounding = Rounding::up;
    else if (part == "sat") how.saturate = true;
    else if (part == "ftz") how.flush = true;
    else if (part == "relu") how.relu = true;
    else return false;
  }
  return true;
}

ScalarForm packed(const Opcode& op, PtxType to, PtxType from) {
  if (to == PtxType::bf16x2 && from == PtxType::f32 && op.only({"rn"}, 2))
    return {select<Binary<PackBfloat, uint32_t, float>>(), 0, "www"};
  if (to == PtxType::f16x2 && from == PtxType::f32 && op.only({"rn"}, 2))
    return {select<Binary<PackHalf, uint32_t, float>>(), 0, "www"};
  if (to == PtxType::bf16x2 && from == PtxType::f32 && op.only({"rn", "relu"}, 2))
    return {plain<Binary<PackBfloatRelu, uint32_t, float>>(), 0, "www"};
  if (to == PtxType::f16x2 && from == PtxType::f32 && op.only({"rn", "relu"}, 2))
    return {plain<Binary<PackHalfRelu, uint32_t, float>>(), 0, "www"};
  if (to == PtxType::e4m3x2 && from == PtxType::f32 && op.only({"rn", "satfinite"}, 2))
    return {plain<Binary<PackFp8<3>, uint32_t, float>>(), 0, "www"};
  if (to == PtxType::e5m2x2 && from == PtxType::f32 && op.only({"rn", "satfinite"}, 2))
    return {plain<Binary<PackFp8<2>, uint32_t, float>>(), 0, "www"};
  if (to == PtxType::f16x2 && from == PtxType::e4m3x2)
    return {plain<Unary<UnpackFp8<3>, uint32_t, uint16_t>>(), 0, "ww"};
  if (to == PtxType::f16x2 && from == PtxType::e5m2x2)
    return {plain<Unary<UnpackFp8<2>, uint32_t, uint16_t>>(), 0, "ww"};
  return {};
}

}  // namespace

std::optional<ScalarForm> resolve_convert(const Opcode& op, std::span<const OperandShape> shapes) {
  if (op.base() != "cvt" || op.parts.size() < 3 || shapes.size() < 2) return {};
  const PtxType to = parse_ptx_type(op.parts[op.parts.size() - 2]), from = op.type();
  ScalarForm form = packed(op, to, from);
  if (form.run != nullptr) return form;
  General how;
  how.to = to, how.from = from;
  if (!read_modifiers(op, how) || !(is_integer(to) || is_float(to)) || !(is_integer(from) || is_float(from))) return {};
  // a register may be wider than the type
  how.wide_to = shapes[0].bytes == 8;
  how.wide_from = shapes[1].bytes == 8 || (shapes[1].bytes == 0 && ptx_type_bytes(from) == 8);
  form.run = frequent_pair(how);
  if (form.run == nullptr) form.run = plain<ConvertAny>(), form.aux = how.pack();
  form.operands = std::string(how.wide_to ? "x" : "w") + (how.wide_from ? "x" : "w");
  return form;
}

}  // namespace seqtile::sim
