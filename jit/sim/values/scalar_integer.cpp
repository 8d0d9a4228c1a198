// jit/sim/values/scalar_integer.cpp -- integer arithmetic: add sub mul mad div rem min max neg abs sad.
// SPDX-License-Identifier: Apache-2.0
//
// Arithmetic is done on unsigned values, where overflow wraps, as the machine's does.

#include "jit/sim/values/scalar.h"

namespace seqtile::sim {
namespace {

/// At least 32 bits wide, so that no promotion to int brings signed overflow back.
template <class T>
using Wrap = std::conditional_t<sizeof(T) == 8, uint64_t, uint32_t>;
template <class T>
using Wider = std::conditional_t<std::is_signed_v<T>, std::conditional_t<sizeof(T) == 2, int32_t, int64_t>,
                                 std::conditional_t<sizeof(T) == 2, uint32_t, uint64_t>>;

struct Add {
  template <class T>
  SEQTILE_SIM_INLINE static T apply(T a, T b) {
    return static_cast<T>(Wrap<T>(a) + Wrap<T>(b));
  }
};
struct Sub {
  template <class T>
  SEQTILE_SIM_INLINE static T apply(T a, T b) {
    return static_cast<T>(Wrap<T>(a) - Wrap<T>(b));
  }
};
struct MulLo {
  template <class T>
  SEQTILE_SIM_INLINE static T apply(T a, T b) {
    return static_cast<T>(Wrap<T>(a) * Wrap<T>(b));
  }
};
struct MulWide {
  template <class T>
  SEQTILE_SIM_INLINE static Wider<T> apply(T a, T b) {
    return static_cast<Wider<T>>(Wider<T>(a) * Wider<T>(b));
  }
};
struct MulHi {
  template <class T>
  SEQTILE_SIM_INLINE static T apply(T a, T b) {
    if constexpr (sizeof(T) == 8) {
      using Double = std::conditional_t<std::is_signed_v<T>, __int128, unsigned __int128>;
      return static_cast<T>((Double(a) * Double(b)) >> 64);
    } else {
      return static_cast<T>(MulWide::apply(a, b) >> (8 * sizeof(T)));
    }
  }
};
struct MadLo {
  template <class T>
  SEQTILE_SIM_INLINE static T apply(T a, T b, T c) {
    return Add::apply(MulLo::apply(a, b), c);
  }
};
struct MadHi {
  template <class T>
  SEQTILE_SIM_INLINE static T apply(T a, T b, T c) {
    return Add::apply(MulHi::apply(a, b), c);
  }
};
struct MadWide {
  template <class T>
  SEQTILE_SIM_INLINE static Wider<T> apply(T a, T b, Wider<T> c) {
    return Add::apply(MulWide::apply(a, b), c);
  }
};
/// A division by zero gives all ones on the devices; the most negative value by -1 wraps.
struct Div {
  template <class T>
  SEQTILE_SIM_INLINE static T apply(T a, T b) {
    if (b == 0) return static_cast<T>(~T(0));
    if (std::is_signed_v<T> && b == static_cast<T>(-1)) return Sub::apply(T(0), a);
    return static_cast<T>(a / b);
  }
};
struct Rem {
  template <class T>
  SEQTILE_SIM_INLINE static T apply(T a, T b) {
    if (b == 0) return a;
    if (std::is_signed_v<T> && b == static_cast<T>(-1)) return 0;
    return static_cast<T>(a % b);
  }
};
struct Min {
  template <class T>
  SEQTILE_SIM_INLINE static T apply(T a, T b) {
    return b < a ? b : a;
  }
};
struct Max {
  template <class T>
  SEQTILE_SIM_INLINE static T apply(T a, T b) {
    return a < b ? b : a;
  }
};
struct Neg {
  template <class T>
  SEQTILE_SIM_INLINE static T apply(T a) {
    return Sub::apply(T(0), a);
  }
};
struct Abs {
  template <class T>
  SEQTILE_SIM_INLINE static T apply(T a) {
    return a < 0 ? Neg::apply(a) : a;
  }
};
struct Sad {
  template <class T>
  SEQTILE_SIM_INLINE static T apply(T a, T b, T c) {
    return Add::apply(c, a < b ? Sub::apply(b, a) : Sub::apply(a, b));
  }
};

template <class T>
using AddOf = Binary<Add, T, T>;
template <class T>
using SubOf = Binary<Sub, T, T>;
template <class T>
using MulLoOf = Binary<MulLo, T, T>;
template <class T>
using MulHiOf = Binary<MulHi, T, T>;
template <class T>
using MulWideOf = Binary<MulWide, Wider<T>, T>;
template <class T>
using MadLoOf = Ternary<MadLo, T, T>;
template <class T>
using MadHiOf = Ternary<MadHi, T, T>;
template <class T>
using MadWideOf = Ternary<MadWide, Wider<T>, T, T, Wider<T>>;
template <class T>
using DivOf = Binary<Div, T, T>;
template <class T>
using RemOf = Binary<Rem, T, T>;
template <class T>
using MinOf = Binary<Min, T, T>;
template <class T>
using MaxOf = Binary<Max, T, T>;
template <class T>
using NegOf = Unary<Neg, T, T>;
template <class T>
using AbsOf = Unary<Abs, T, T>;
template <class T>
using SadOf = Ternary<Sad, T, T>;

template <template <class> class K>
ScalarFn narrow(PtxType type) {
  switch (type) {
    case PtxType::u16: return plain<K<uint16_t>>();
    case PtxType::s16: return plain<K<int16_t>>();
    case PtxType::u32: return select<K<uint32_t>>();
    case PtxType::s32: return select<K<int32_t>>();
    default: return nullptr;
  }
}

template <template <class> class K>
ScalarFn any(PtxType type) {
  switch (type) {
    case PtxType::u64: return select<K<uint64_t>>();
    case PtxType::s64: return select<K<int64_t>>();
    default: return narrow<K>(type);
  }
}

std::string wide_letters(PtxType type, bool is_mad) {
  if (ptx_type_bytes(type) == 2) return is_mad ? "wwww" : "www";
  return is_mad ? "xwwx" : "xww";
}

std::optional<ScalarForm> product(const Opcode& op, bool is_mad) {
  const PtxType type = op.type();
  const int count = is_mad ? 4 : 3;
  if (op.parts.size() != 3) return {};
  if (op.parts[1] == "wide")
    return ScalarForm{is_mad ? narrow<MadWideOf>(type) : narrow<MulWideOf>(type), 0, wide_letters(type, is_mad)};
  if (op.parts[1] == "lo")
    return ScalarForm{is_mad ? any<MadLoOf>(type) : any<MulLoOf>(type), 0, operand_letters(type, count)};
  if (op.parts[1] == "hi")
    return ScalarForm{is_mad ? any<MadHiOf>(type) : any<MulHiOf>(type), 0, operand_letters(type, count)};
  return {};
}

ScalarFn simple(std::string_view base, PtxType type) {
  if (base == "add") return any<AddOf>(type);
  if (base == "sub") return any<SubOf>(type);
  if (base == "div") return any<DivOf>(type);
  if (base == "rem") return any<RemOf>(type);
  if (base == "min") return any<MinOf>(type);
  if (base == "max") return any<MaxOf>(type);
  if (base == "neg") return any<NegOf>(type);
  if (base == "abs") return any<AbsOf>(type);
  return base == "sad" ? any<SadOf>(type) : nullptr;
}

}  // namespace

std::optional<ScalarForm> resolve_integer(const Opcode& op) {
  const std::string_view base = op.base();
  if (base == "mul" || base == "mad") {
    auto form = product(op, base == "mad");
    return form && form->run != nullptr ? form : std::nullopt;
  }
  if (op.parts.size() != 2) return {};
  ScalarForm form;
  form.run = simple(base, op.type());
  if (form.run == nullptr) return {};
  form.operands = operand_letters(op.type(), base == "neg" || base == "abs" ? 2 : base == "sad" ? 4 : 3);
  return form;
}

}  // namespace seqtile::sim
