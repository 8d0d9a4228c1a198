// jit/sim/values/scalar_compare.cpp -- setp, set, selp, slct and testp.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include "jit/sim/values/scalar.h"

namespace seqtile::sim {
namespace {

struct Eq {
  template <class T>
  SEQTILE_SIM_INLINE static bool apply(T a, T b) {
    return a == b;
  }
};
struct Ne {
  template <class T>
  SEQTILE_SIM_INLINE static bool apply(T a, T b) {
    return a < b || b < a;
  }
};
struct Lt {
  template <class T>
  SEQTILE_SIM_INLINE static bool apply(T a, T b) {
    return a < b;
  }
};
struct Le {
  template <class T>
  SEQTILE_SIM_INLINE static bool apply(T a, T b) {
    return a <= b;
  }
};
struct Gt {
  template <class T>
  SEQTILE_SIM_INLINE static bool apply(T a, T b) {
    return a > b;
  }
};
struct Ge {
  template <class T>
  SEQTILE_SIM_INLINE static bool apply(T a, T b) {
    return a >= b;
  }
};
// The unordered comparisons hold where an operand is a NaN; so each is the opposite's negation.
struct Equ {
  template <class T>
  SEQTILE_SIM_INLINE static bool apply(T a, T b) {
    return !(a < b || b < a);
  }
};
struct Neu {
  template <class T>
  SEQTILE_SIM_INLINE static bool apply(T a, T b) {
    return !(a == b);
  }
};
struct Ltu {
  template <class T>
  SEQTILE_SIM_INLINE static bool apply(T a, T b) {
    return !(a >= b);
  }
};
struct Leu {
  template <class T>
  SEQTILE_SIM_INLINE static bool apply(T a, T b) {
    return !(a > b);
  }
};
struct Gtu {
  template <class T>
  SEQTILE_SIM_INLINE static bool apply(T a, T b) {
    return !(a <= b);
  }
};
struct Geu {
  template <class T>
  SEQTILE_SIM_INLINE static bool apply(T a, T b) {
    return !(a < b);
  }
};
struct Num {
  template <class T>
  SEQTILE_SIM_INLINE static bool apply(T a, T b) {
    return a == a && b == b;
  }
};
struct Nan {
  template <class T>
  SEQTILE_SIM_INLINE static bool apply(T a, T b) {
    return a != a || b != b;
  }
};

/// A 16-bit float in a register, widened for the comparison.
template <class Op, bool is_bfloat>
struct Compare16 {
  SEQTILE_SIM_INLINE static bool apply(uint16_t a, uint16_t b) {
    return is_bfloat ? Op::apply(bf16_to_float(a), bf16_to_float(b)) : Op::apply(half_to_float(a), half_to_float(b));
  }
};

template <class Op>
ScalarFn integer_compare(PtxType type) {
  switch (type) {
    case PtxType::b16:
    case PtxType::u16: return plain<Binary<Op, Predicate, uint16_t>>();
    case PtxType::s16: return plain<Binary<Op, Predicate, int16_t>>();
    case PtxType::b32:
    case PtxType::u32: return select<Binary<Op, Predicate, uint32_t>>();
    case PtxType::s32: return select<Binary<Op, Predicate, int32_t>>();
    case PtxType::b64:
    case PtxType::u64: return select<Binary<Op, Predicate, uint64_t>>();
    case PtxType::s64: return select<Binary<Op, Predicate, int64_t>>();
    default: return nullptr;
  }
}

template <class Op>
ScalarFn float_compare(PtxType type) {
  switch (type) {
    case PtxType::f16: return plain<Binary<Compare16<Op, false>, Predicate, uint16_t>>();
    case PtxType::bf16: return plain<Binary<Compare16<Op, true>, Predicate, uint16_t>>();
    case PtxType::f32: return select<Binary<Op, Predicate, float>>();
    case PtxType::f64: return plain<Binary<Op, Predicate, double>>();
    default: return nullptr;
  }
}

template <class Op>
ScalarFn any_compare(PtxType type) {
  const ScalarFn run = integer_compare<Op>(type);
  return run != nullptr ? run : float_compare<Op>(type);
}

ScalarFn comparison(std::string_view name, PtxType type) {
  if (name == "eq") return any_compare<Eq>(type);
  if (name == "ne") return any_compare<Ne>(type);
  if (name == "lt") return any_compare<Lt>(type);
  if (name == "le") return any_compare<Le>(type);
  if (name == "gt") return any_compare<Gt>(type);
  if (name == "ge") return any_compare<Ge>(type);
  if (name == "lo") return integer_compare<Lt>(type);
  if (name == "ls") return integer_compare<Le>(type);
  if (name == "hi") return integer_compare<Gt>(type);
  if (name == "hs") return integer_compare<Ge>(type);
  if (name == "equ") return float_compare<Equ>(type);
  if (name == "neu") return float_compare<Neu>(type);
  if (name == "ltu") return float_compare<Ltu>(type);
  if (name == "leu") return float_compare<Leu>(type);
  if (name == "gtu") return float_compare<Gtu>(type);
  if (name == "geu") return float_compare<Geu>(type);
  if (name == "num") return float_compare<Num>(type);
  return name == "nan" ? float_compare<Nan>(type) : nullptr;
}

constexpr std::string_view kComparisons[] = {"eq", "ne",  "lt",  "le",  "gt",  "ge",  "lo",  "ls",  "hi",
                                             "hs", "equ", "neu", "ltu", "leu", "gtu", "geu", "num", "nan"};
constexpr PtxType kComparedTypes[] = {PtxType::b16,  PtxType::u16, PtxType::s16, PtxType::b32, PtxType::u32,
                                      PtxType::s32,  PtxType::b64, PtxType::u64, PtxType::s64, PtxType::f16,
                                      PtxType::bf16, PtxType::f32, PtxType::f64};

/// setp with a second result or a third operand: p[, q], a, b[, c]. aux: comparison | type << 8 | rest.
struct CompareAndCombine {
  static constexpr uint32_t kAnd = 1 << 16, kOr = 2 << 16, kXor = 3 << 16, kBoth = 1 << 18, kNegated = 1 << 19;
  static bool combine(bool a, bool c, uint32_t how) {
    return how == kAnd ? a && c : how == kOr ? a || c : how == kXor ? a != c : a;
  }
  static void run(uint32_t* regs, const uint32_t* slots, uint32_t mask, uint32_t aux) {
    const bool is_both = (aux & kBoth) != 0, is_negated = (aux & kNegated) != 0;
    const uint32_t how = aux & kXor, *in = slots + 1 + is_both;
    uint32_t third[kWarpLanes] = {};
    if (how != 0) std::copy_n(regs + in[2] * kWarpLanes, kWarpLanes, third);  // may be a destination too
    const uint32_t compare[] = {slots[0], in[0], in[1]};
    comparison(kComparisons[aux & 0xff], kComparedTypes[aux >> 8 & 0xff])(regs, compare, mask, 0);
    const Lanes<Predicate> p(regs, slots[0]), q(regs, slots[is_both ? 1 : 0]);
    for_lanes(mask,
              SEQTILE_SIM_LANE(const bool holds = p[i], c = (third[i] != 0) != is_negated;
                               if (is_both) q.set(i, combine(!holds, c, how)); p.set(i, combine(holds, c, how));));
  }
};

ScalarForm combined_comparison(const Opcode& op, std::span<const OperandShape> shapes) {
  // setp.CMP[.BOOL][.ftz].type; the second result counts as an operand of its own
  const std::string_view second = op.parts.size() > 3 ? op.parts[2] : "";
  const uint32_t how = second == "and"   ? CompareAndCombine::kAnd
                       : second == "or"  ? CompareAndCombine::kOr
                       : second == "xor" ? CompareAndCombine::kXor
                                         : 0;
  const size_t rest = op.parts.size() - 3 - (how != 0 ? 1 : 0), plain_count = how != 0 ? 4 : 3;
  if (rest > 1 || (rest == 1 && op.parts[op.parts.size() - 2] != "ftz")) return {};
  if (shapes.size() != plain_count && shapes.size() != plain_count + 1) return {};
  if (comparison(op.parts[1], op.type()) == nullptr) return {};
  const bool is_both = shapes.size() > plain_count;
  const auto name = static_cast<uint32_t>(std::find(std::begin(kComparisons), std::end(kComparisons), op.parts[1]) -
                                          std::begin(kComparisons));
  const auto type = static_cast<uint32_t>(std::find(std::begin(kComparedTypes), std::end(kComparedTypes), op.type()) -
                                          std::begin(kComparedTypes));
  const uint32_t aux = name | type << 8 | how | (is_both ? CompareAndCombine::kBoth : 0) |
                       (shapes.back().is_negated ? CompareAndCombine::kNegated : 0);
  return {plain<CompareAndCombine>(), aux,
          std::string(is_both ? "pp" : "p") + operand_letters(op.type(), 2) + (how != 0 ? "n" : ""), is_both ? 2 : 1};
}

/// set: a comparison whose result is a number. aux: as above without the third operand, and the bits of "true" << 16.
struct CompareToNumber {
  static constexpr uint32_t kAllOnes = 0xffff;  ///< of a 32-bit integer; else the upper half of the number
  static void run(uint32_t* regs, const uint32_t* slots, uint32_t mask, uint32_t aux) {
    comparison(kComparisons[aux & 0xff], kComparedTypes[aux >> 8 & 0xff])(regs, slots, mask, 0);
    const uint32_t high = aux >> 16, truth = high == kAllOnes ? ~0u : high == 0x3c00 ? high : high << 16;
    const Lanes<uint32_t> d(regs, slots[0]);
    for_lanes(mask, [&](int i) { d.set(i, d[i] != 0 ? truth : 0); });
  }
};

/// Both halves of packed 16-bit floats, one after the other; `aux` as of CompareToNumber.
template <bool is_bfloat>
struct CompareHalves {
  static void run(uint32_t* regs, const uint32_t* slots, uint32_t mask, uint32_t aux) {
    const ScalarFn compare = comparison(kComparisons[aux & 0xff], is_bfloat ? PtxType::bf16 : PtxType::f16);
    alignas(64) uint32_t part[3 * kWarpLanes];
    const uint32_t local[] = {0, 1, 2}, truth = is_bfloat ? 0x3f80 : 0x3c00;
    uint32_t result[kWarpLanes] = {};
    for (const int shift : {0, 16}) {
      for_lanes(mask, [&](int i) {
        part[kWarpLanes + i] = regs[slots[1] * kWarpLanes + static_cast<uint32_t>(i)] >> shift & 0xffff;
        part[2 * kWarpLanes + i] = regs[slots[2] * kWarpLanes + static_cast<uint32_t>(i)] >> shift & 0xffff;
      });
      compare(part, local, mask, 0);
      for_lanes(mask, [&](int i) { result[i] |= (part[i] != 0 ? truth : 0) << shift; });
    }
    for_lanes(mask, [&](int i) { regs[slots[0] * kWarpLanes + static_cast<uint32_t>(i)] = result[i]; });
  }
};

/// set.CMP[.ftz].dtype.stype
ScalarForm comparison_to_number(const Opcode& op) {
  const size_t parts = op.parts.size();
  if (parts != 4 && !(parts == 5 && op.parts[2] == "ftz")) return {};
  const PtxType to = parse_ptx_type(op.parts[parts - 2]), from = op.type();
  const auto* const name = std::find(std::begin(kComparisons), std::end(kComparisons), op.parts[1]);
  const auto* const type = std::find(std::begin(kComparedTypes), std::end(kComparedTypes), from);
  if (name == std::end(kComparisons)) return {};
  const auto compared = static_cast<uint32_t>(name - std::begin(kComparisons));
  if (to == from && (to == PtxType::f16x2 || to == PtxType::bf16x2) && comparison(*name, PtxType::f16) != nullptr)
    return {to == PtxType::f16x2 ? plain<CompareHalves<false>>() : plain<CompareHalves<true>>(), compared, "www"};
  const bool is_word = to == PtxType::u32 || to == PtxType::s32;
  const uint32_t truth = is_word              ? CompareToNumber::kAllOnes
                         : to == PtxType::f32 ? 0x3f80
                         : to == PtxType::f16 ? 0x3c00
                                              : 0;
  if (type == std::end(kComparedTypes) || truth == 0 || comparison(*name, from) == nullptr) return {};
  return {plain<CompareToNumber>(),
          compared | static_cast<uint32_t>(type - std::begin(kComparedTypes)) << 8 | truth << 16,
          "w" + operand_letters(from, 2)};
}

template <class T>
struct SelectOf {
  SEQTILE_SIM_INLINE static void run(uint32_t* regs, const uint32_t* slots, uint32_t mask, uint32_t) {
    const Lanes<T> d(regs, slots[0]), a(regs, slots[1]), b(regs, slots[2]);
    const Lanes<Predicate> p(regs, slots[3]);
    for_lanes(mask, SEQTILE_SIM_LANE(d.set(i, p[i] ? a[i] : b[i])));
  }
};

template <class T, class C>
struct SelectBySign {
  static void run(uint32_t* regs, const uint32_t* slots, uint32_t mask, uint32_t) {
    const Lanes<T> d(regs, slots[0]), a(regs, slots[1]), b(regs, slots[2]);
    const Lanes<C> c(regs, slots[3]);
    for_lanes(mask, SEQTILE_SIM_LANE(d.set(i, c[i] >= 0 ? a[i] : b[i])));
  }
};

struct TestProperty {
  static void run(uint32_t* regs, const uint32_t* slots, uint32_t mask, uint32_t property) {
    const Lanes<Predicate> d(regs, slots[0]);
    const Lanes<float> a(regs, slots[1]);
    for_lanes(mask, SEQTILE_SIM_LANE(const int kind = std::fpclassify(a[i]);
                                     const bool holds[] = {kind != FP_NAN && kind != FP_INFINITE, kind == FP_INFINITE,
                                                           kind != FP_NAN, kind == FP_NAN, kind == FP_NORMAL,
                                                           kind == FP_SUBNORMAL};
                                     d.set(i, holds[property]);));
  }
};

ScalarForm test_property(const Opcode& op) {
  static constexpr std::string_view kNames[] = {"finite", "infinite", "number", "notanumber", "normal", "subnormal"};
  if (op.parts.size() == 3 && op.type() == PtxType::f32)
    for (uint32_t i = 0; i < std::size(kNames); ++i)
      if (op.parts[1] == kNames[i]) return {plain<TestProperty>(), i, "pw"};
  return {};
}

ScalarForm selection(const Opcode& op) {
  const PtxType type = op.type();
  const std::string letters = operand_letters(type, 3) + "p";
  switch (ptx_type_bytes(type)) {
    case 2: return {plain<SelectOf<uint16_t>>(), 0, letters};
    case 4: return {select<SelectOf<uint32_t>>(), 0, letters};
    case 8: return {select<SelectOf<uint64_t>>(), 0, letters};
    default: return {};
  }
}

ScalarForm selection_by_sign(const Opcode& op) {
  const PtxType data = op.parts.size() == 3 ? parse_ptx_type(op.parts[1]) : PtxType::none;
  const bool is_wide = ptx_type_bytes(data) == 8;
  const std::string letters = operand_letters(data, 3) + "w";
  if (op.type() == PtxType::s32 && ptx_type_bytes(data) >= 4)
    return {is_wide ? plain<SelectBySign<uint64_t, int32_t>>() : plain<SelectBySign<uint32_t, int32_t>>(), 0, letters};
  if (op.type() == PtxType::f32 && ptx_type_bytes(data) >= 4)
    return {is_wide ? plain<SelectBySign<uint64_t, float>>() : plain<SelectBySign<uint32_t, float>>(), 0, letters};
  return {};
}

}  // namespace

std::optional<ScalarForm> resolve_compare(const Opcode& op, std::span<const OperandShape> shapes) {
  ScalarForm form;
  const bool is_plain_setp =
      op.base() == "setp" && (op.parts.size() == 3 || (op.parts.size() == 4 && op.parts[2] == "ftz"));
  if (is_plain_setp && shapes.size() == 3)
    form = {comparison(op.parts[1], op.type()), 0, "p" + operand_letters(op.type(), 2)};
  else if (op.base() == "setp" && op.parts.size() >= 3) form = combined_comparison(op, shapes);
  if (op.base() == "selp" && op.parts.size() == 2) form = selection(op);
  if (op.base() == "set" && shapes.size() == 3) form = comparison_to_number(op);
  if (op.base() == "slct") form = selection_by_sign(op);
  if (op.base() == "testp") form = test_property(op);
  return form.run != nullptr ? std::optional(form) : std::nullopt;
}

}  // namespace seqtile::sim
