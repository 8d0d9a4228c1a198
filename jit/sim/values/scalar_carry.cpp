// jit/sim/values/scalar_carry.cpp -- carries, dp2a and dp4a, saturation: the integer forms with a state or lane of
// their own.
// SPDX-License-Identifier: Apache-2.0
//
// The condition code is a register that no text names: letter 'c'. Operands are d[, carry out], a, b[, c][, carry in].
#include <algorithm>
#include <cstdint>
#include <string>

#include "jit/sim/values/scalar.h"

namespace seqtile::sim {
namespace {

constexpr uint32_t kSubtract = 1, kReads = 2, kWrites = 4, kProductLow = 8, kProductHigh = 16;

template <class T>
struct WithCarry {
  __extension__ typedef unsigned __int128 Sum;
  static void run(uint32_t* regs, const uint32_t* slots, uint32_t mask, uint32_t aux) {
    constexpr int kBits = 8 * sizeof(T);
    const uint32_t* in = slots + 1 + ((aux & kWrites) != 0);
    const bool is_product = (aux & (kProductLow | kProductHigh)) != 0;
    for_lanes(mask,
              SEQTILE_SIM_LANE(
                  const T a = Lanes<T>(regs, in[0])[i], b = Lanes<T>(regs, in[1])[i];
                  const T c = is_product ? Lanes<T>(regs, in[2])[i] : T{0};
                  const T carry = aux & kReads ? static_cast<T>(Lanes<uint32_t>(regs, in[2 + is_product])[i]) : T{0};
                  const Sum product = Sum{a} * b;
                  const T first = is_product ? static_cast<T>(aux & kProductHigh ? product >> kBits : product) : a;
                  const T second = is_product ? c : b;
                  const Sum sum = aux & kSubtract ? Sum{first} - second - carry : Sum{first} + second + carry;
                  Lanes<T>(regs, slots[0]).set(i, static_cast<T>(sum));
                  if (aux & kWrites) Lanes<uint32_t>(regs, slots[1]).set(i, static_cast<uint32_t>(sum >> kBits) & 1);));
  }
};

ScalarForm carry_form(const Opcode& op) {
  const std::string_view base = op.base();
  const bool is_product = base == "mad" || base == "madc";
  const bool is_known = is_product || base == "add" || base == "addc" || base == "sub" || base == "subc";
  const size_t cc_at = is_product ? 2 : 1;
  const bool writes = op.parts.size() == cc_at + 2 && op.parts[cc_at] == "cc", reads = base.back() == 'c';
  if (!is_known || (!writes && !reads) || op.parts.size() != cc_at + 1 + (writes ? 1 : 0)) return {};
  uint32_t aux = (base[0] == 's' ? kSubtract : 0) | (reads ? kReads : 0) | (writes ? kWrites : 0);
  if (is_product && op.parts[1] != "lo" && op.parts[1] != "hi") return {};
  if (is_product) aux |= op.parts[1] == "lo" ? kProductLow : kProductHigh;
  const std::string operands = std::string(writes ? "c" : "") + operand_letters(op.type(), is_product ? 3 : 2);
  ScalarForm form{nullptr, aux, operand_letters(op.type(), 1) + operands + (reads ? "c" : ""), writes ? 2 : 1};
  if (op.type() == PtxType::u32 || op.type() == PtxType::s32) form.run = plain<WithCarry<uint32_t>>();
  if (op.type() == PtxType::u64 || op.type() == PtxType::s64) form.run = plain<WithCarry<uint64_t>>();
  return form;
}

/// Four products of bytes; aux: bit 0 the bytes of a are signed, bit 1 those of b.
struct DotProduct {
  static void run(uint32_t* regs, const uint32_t* slots, uint32_t mask, uint32_t aux) {
    const auto byte = [](uint32_t word, int k, bool is_signed) {
      const uint32_t bits = word >> (8 * k) & 0xff;
      return is_signed ? static_cast<int32_t>(static_cast<int8_t>(bits)) : static_cast<int32_t>(bits);
    };
    const Lanes<uint32_t> d(regs, slots[0]), a(regs, slots[1]), b(regs, slots[2]), c(regs, slots[3]);
    for_lanes(mask, SEQTILE_SIM_LANE(uint32_t sum = c[i]; for (int k = 0; k < 4; ++k) sum += static_cast<uint32_t>(
                                                              byte(a[i], k, aux & 1) * byte(b[i], k, aux & 2));
                                     d.set(i, sum);));
  }
};

/// Two products of a's halves with bytes of b; aux as for DotProduct, and bit 2: the upper bytes of b.
struct DotProduct2 {
  static void run(uint32_t* regs, const uint32_t* slots, uint32_t mask, uint32_t aux) {
    const auto part = [](uint32_t word, int first, int bits, bool is_signed) {
      const uint32_t value = word >> first & ((1u << bits) - 1), sign = 1u << (bits - 1);
      return is_signed ? static_cast<int64_t>(value ^ sign) - sign : static_cast<int64_t>(value);
    };
    const Lanes<uint32_t> d(regs, slots[0]), a(regs, slots[1]), b(regs, slots[2]), c(regs, slots[3]);
    const int byte = (aux & 4) != 0 ? 16 : 0;
    for_lanes(mask, [&](int i) {
      int64_t sum = c[i];
      for (int k = 0; k < 2; ++k)
        sum += part(a[i], 16 * k, 16, (aux & 1) != 0) * part(b[i], byte + 8 * k, 8, (aux & 2) != 0);
      d.set(i, static_cast<uint32_t>(sum));
    });
  }
};

template <int sign>
struct Saturating {
  static int32_t apply(int32_t a, int32_t b) {
    return static_cast<int32_t>(std::clamp<int64_t>(int64_t{a} + sign * int64_t{b}, INT32_MIN, INT32_MAX));
  }
};

}  // namespace

std::optional<ScalarForm> resolve_carry(const Opcode& op) {
  ScalarForm form = carry_form(op);
  const bool is_dp2a = op.base() == "dp2a" && op.parts.size() == 4 && (op.parts[1] == "lo" || op.parts[1] == "hi");
  if (is_dp2a || (op.base() == "dp4a" && op.parts.size() == 3)) {
    const PtxType a = parse_ptx_type(op.parts[op.parts.size() - 2]), b = op.type();
    const auto is_word = [](PtxType type) { return type == PtxType::u32 || type == PtxType::s32; };
    const uint32_t signs = (a == PtxType::s32 ? 1u : 0u) | (b == PtxType::s32 ? 2u : 0u);
    if (is_word(a) && is_word(b))
      form = {is_dp2a ? plain<DotProduct2>() : plain<DotProduct>(), signs | (op.parts[1] == "hi" ? 4u : 0u), "wwww"};
  }
  if (op.parts.size() == 3 && op.parts[1] == "sat" && op.type() == PtxType::s32) {
    if (op.base() == "add") form = {plain<Binary<Saturating<1>, int32_t, int32_t>>(), 0, "www"};
    if (op.base() == "sub") form = {plain<Binary<Saturating<-1>, int32_t, int32_t>>(), 0, "www"};
  }
  return form.run != nullptr ? std::optional(form) : std::nullopt;
}

}  // namespace seqtile::sim
