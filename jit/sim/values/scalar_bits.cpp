// jit/sim/values/scalar_bits.cpp -- bit operations: and or xor not cnot shl shr shf bfe bfi bfind brev popc clz prmt
// lop3.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "jit/sim/values/scalar.h"

namespace seqtile::sim {
namespace {

struct And {
  template <class T>
  SEQTILE_SIM_INLINE static T apply(T a, T b) {
    return a & b;
  }
};
struct Or {
  template <class T>
  SEQTILE_SIM_INLINE static T apply(T a, T b) {
    return a | b;
  }
};
struct Xor {
  template <class T>
  SEQTILE_SIM_INLINE static T apply(T a, T b) {
    return a ^ b;
  }
};
struct Not {
  template <class T>
  SEQTILE_SIM_INLINE static T apply(T a) {
    return static_cast<T>(~a);
  }
};
struct Cnot {
  template <class T>
  SEQTILE_SIM_INLINE static T apply(T a) {
    return a == 0 ? 1 : 0;
  }
};
/// Shift counts beyond the width give 0, or the sign for an arithmetic shift.
struct Shl {
  template <class T>
  SEQTILE_SIM_INLINE static T apply(T a, uint32_t n) {
    constexpr uint32_t kBits = 8 * sizeof(T);
    return n >= kBits ? T(0) : static_cast<T>(a << (n & (kBits - 1)));
  }
};
struct Shr {
  template <class T>
  SEQTILE_SIM_INLINE static T apply(T a, uint32_t n) {
    constexpr uint32_t kBits = 8 * sizeof(T);
    if constexpr (std::is_signed_v<T>) return static_cast<T>(a >> std::min(n, kBits - 1));
    else return n >= kBits ? T(0) : static_cast<T>(a >> (n & (kBits - 1)));
  }
};
struct Popc {
  template <class T>
  SEQTILE_SIM_INLINE static uint32_t apply(T a) {
    return static_cast<uint32_t>(std::popcount(a));
  }
};
struct Clz {
  template <class T>
  SEQTILE_SIM_INLINE static uint32_t apply(T a) {
    return static_cast<uint32_t>(std::countl_zero(a));
  }
};
struct Brev {
  template <class T>
  static T apply(T a) {
    T result = 0;
    for (size_t i = 0; i < 8 * sizeof(T); ++i) result = static_cast<T>(result << 1 | ((a >> i) & 1));
    return result;
  }
};
/// Position of the most significant bit (of the first that differs from the sign), all ones where there is none.
struct Bfind {
  template <class T>
  static uint32_t apply(T a) {
    using U = std::make_unsigned_t<T>;
    const U bits = static_cast<U>(a < 0 ? ~a : a);
    return bits == 0 ? ~0u : static_cast<uint32_t>(8 * sizeof(T) - 1 - std::countl_zero(bits));
  }
};
struct Bfe {
  template <class T>
  SEQTILE_SIM_INLINE static T apply(T a, uint32_t position, uint32_t length) {
    constexpr uint32_t kBits = 8 * sizeof(T);
    using U = std::make_unsigned_t<T>;
    position &= 0xff, length &= 0xff;
    if (length == 0) return 0;
    const U shifted = static_cast<U>(Shr::apply(a, position));
    if (length >= kBits) return static_cast<T>(shifted);
    const U low = shifted & ((U(1) << length) - 1);
    if constexpr (std::is_unsigned_v<T>) return low;
    const uint32_t sign_at = std::min(position + length - 1, kBits - 1);
    const bool is_negative = (static_cast<U>(a) >> sign_at & 1) != 0;
    return static_cast<T>(is_negative ? low | ~((U(1) << length) - 1) : low);
  }
};

/// Inserts the low `length` bits of a into b.
template <class T>
struct BfiOf {
  static void run(uint32_t* regs, const uint32_t* slots, uint32_t mask, uint32_t) {
    const Lanes<T> d(regs, slots[0]), a(regs, slots[1]), b(regs, slots[2]);
    const Lanes<uint32_t> position(regs, slots[3]), length(regs, slots[4]);
    for_lanes(mask, SEQTILE_SIM_LANE(const uint32_t n = length[i] & 0xff;
                                     const T ones =
                                         n >= 8 * sizeof(T) ? static_cast<T>(~T(0)) : static_cast<T>((T(1) << n) - 1);
                                     const T field = Shl::apply(ones, position[i] & 0xff);
                                     d.set(i, (b[i] & ~field) | (Shl::apply(a[i], position[i] & 0xff) & field));));
  }
};

struct Prmt {
  static uint32_t apply(uint32_t a, uint32_t b, uint32_t selector) {
    const uint64_t bytes = uint64_t(b) << 32 | a;
    uint32_t result = 0;
    for (int i = 0; i < 4; ++i) {
      const uint32_t nibble = selector >> (4 * i) & 0xf;
      uint32_t byte = static_cast<uint32_t>(bytes >> (8 * (nibble & 7))) & 0xff;
      if (nibble & 8) byte = (byte & 0x80) ? 0xff : 0;
      result |= byte << (8 * i);
    }
    return result;
  }
};

struct Lop3 {
  SEQTILE_SIM_INLINE static void run(uint32_t* regs, const uint32_t* slots, uint32_t mask, uint32_t) {
    const Lanes<uint32_t> d(regs, slots[0]), a(regs, slots[1]), b(regs, slots[2]), c(regs, slots[3]),
        table(regs, slots[4]);
    for_lanes(mask, SEQTILE_SIM_LANE(uint32_t result = 0; for (uint32_t row = 0; row < 8; ++row) {
                const uint32_t minterm = (row & 4 ? a[i] : ~a[i]) & (row & 2 ? b[i] : ~b[i]) & (row & 1 ? c[i] : ~c[i]);
                result |= (table[i] >> row & 1) ? minterm : 0;
              } d.set(i, result);));
  }
};

/// Funnel shift; aux bit 0: right, bit 1: the count is clamped at 32 (else taken modulo 32).
struct Shf {
  static void run(uint32_t* regs, const uint32_t* slots, uint32_t mask, uint32_t aux) {
    const Lanes<uint32_t> d(regs, slots[0]), lo(regs, slots[1]), hi(regs, slots[2]), count(regs, slots[3]);
    for_lanes(mask, SEQTILE_SIM_LANE(const uint64_t both = uint64_t(hi[i]) << 32 | lo[i];
                                     const uint32_t n = (aux & 2) ? std::min(count[i], 32u) : count[i] & 31;
                                     d.set(i, static_cast<uint32_t>((aux & 1) ? both >> n : both << n >> 32));));
  }
};

template <class T>
using AndOf = Binary<And, T, T>;
template <class T>
using OrOf = Binary<Or, T, T>;
template <class T>
using XorOf = Binary<Xor, T, T>;
template <class T>
using NotOf = Unary<Not, T, T>;
template <class T>
using CnotOf = Unary<Cnot, T, T>;
template <class T>
using ShlOf = Binary<Shl, T, T, uint32_t>;
template <class T>
using ShrOf = Binary<Shr, T, T, uint32_t>;
template <class T>
using BfeOf = Ternary<Bfe, T, T, uint32_t>;

template <template <class> class K>
ScalarFn by_width(PtxType type) {
  switch (type) {
    case PtxType::b16: return plain<K<uint16_t>>();
    case PtxType::pred:
    case PtxType::b32: return select<K<uint32_t>>();
    case PtxType::b64: return select<K<uint64_t>>();
    default: return nullptr;
  }
}

ScalarFn shift_right(PtxType type) {
  switch (type) {
    case PtxType::s16: return plain<ShrOf<int16_t>>();
    case PtxType::s32: return select<ShrOf<int32_t>>();
    case PtxType::s64: return select<ShrOf<int64_t>>();
    case PtxType::u16: return plain<ShrOf<uint16_t>>();
    case PtxType::u32: return select<ShrOf<uint32_t>>();
    case PtxType::u64: return select<ShrOf<uint64_t>>();
    default: return by_width<ShrOf>(type);
  }
}

ScalarFn extract(PtxType type) {
  switch (type) {
    case PtxType::u32: return select<BfeOf<uint32_t>>();
    case PtxType::s32: return select<BfeOf<int32_t>>();
    case PtxType::u64: return plain<BfeOf<uint64_t>>();
    case PtxType::s64: return plain<BfeOf<int64_t>>();
    default: return nullptr;
  }
}

/// How far to shift the found bit to the left end.
struct BfindShift {
  template <class T>
  static uint32_t apply(T a) {
    const uint32_t position = Bfind::apply(a);
    return position == ~0u ? ~0u : static_cast<uint32_t>(8 * sizeof(T) - 1) - position;
  }
};

template <class Op>
ScalarFn count_bits(PtxType type) {
  if (type == PtxType::b32) return plain<Unary<Op, uint32_t, uint32_t>>();
  return type == PtxType::b64 ? plain<Unary<Op, uint32_t, uint64_t>>() : nullptr;
}

template <class Op>
ScalarFn find_bit(PtxType type) {
  switch (type) {
    case PtxType::u32: return plain<Unary<Op, uint32_t, uint32_t>>();
    case PtxType::s32: return plain<Unary<Op, uint32_t, int32_t>>();
    case PtxType::u64: return plain<Unary<Op, uint32_t, uint64_t>>();
    case PtxType::s64: return plain<Unary<Op, uint32_t, int64_t>>();
    default: return nullptr;
  }
}

ScalarForm form_of(std::string_view base, PtxType type) {
  const std::string one = operand_letters(type, 1);
  const std::string two = one + one;
  if (base == "and") return {by_width<AndOf>(type), 0, two + one};
  if (base == "or") return {by_width<OrOf>(type), 0, two + one};
  if (base == "xor") return {by_width<XorOf>(type), 0, two + one};
  if (base == "not") return {by_width<NotOf>(type), 0, two};
  if (type == PtxType::pred) return {};
  if (base == "cnot") return {by_width<CnotOf>(type), 0, two};
  if (base == "shl") return {by_width<ShlOf>(type), 0, two + "w"};
  if (base == "shr") return {shift_right(type), 0, two + "w"};
  if (base == "popc") return {count_bits<Popc>(type), 0, "w" + one};
  if (base == "clz") return {count_bits<Clz>(type), 0, "w" + one};
  if (base == "bfind") return {find_bit<Bfind>(type), 0, "w" + one};
  if (base == "bfe") return {extract(type), 0, two + "ww"};
  if (base == "brev" && type == PtxType::b32) return {plain<Unary<Brev, uint32_t, uint32_t>>(), 0, two};
  if (base == "brev" && type == PtxType::b64) return {plain<Unary<Brev, uint64_t, uint64_t>>(), 0, two};
  if (base == "bfi" && type == PtxType::b32) return {plain<BfiOf<uint32_t>>(), 0, "wwwww"};
  if (base == "bfi" && type == PtxType::b64) return {plain<BfiOf<uint64_t>>(), 0, "xxxww"};
  if (base == "prmt" && type == PtxType::b32) return {plain<Ternary<Prmt, uint32_t, uint32_t>>(), 0, "wwww"};
  if (base == "lop3" && type == PtxType::b32) return {select<Lop3>(), 0, "wwwww"};
  return {};
}

}  // namespace

std::optional<ScalarForm> resolve_bits(const Opcode& op) {
  ScalarForm form;
  if (op.base() == "shf" && op.parts.size() == 4 && op.type() == PtxType::b32)
    form = {plain<Shf>(), (op.has("r") ? 1u : 0u) | (op.has("clamp") ? 2u : 0u), "wwww"};
  else if (op.base() == "bfind" && op.parts.size() == 3 && op.parts[1] == "shiftamt")
    form = {find_bit<BfindShift>(op.type()), 0, "w" + operand_letters(op.type(), 1)};
  else if (op.parts.size() == 2) form = form_of(op.base(), op.type());
  return form.run != nullptr ? std::optional(form) : std::nullopt;
}

}  // namespace seqtile::sim
