// jit/sim/values/scalar_move.cpp -- mov with packing and unpacking of `{..}`, cvta, isspacep's address windows.
// SPDX-License-Identifier: Apache-2.0
#include "jit/ptx/address.h"
#include "jit/sim/values/scalar.h"

namespace seqtile::sim {
namespace {

struct Copy {
  template <class T>
  SEQTILE_SIM_INLINE static T apply(T a) {
    return a;
  }
};

/// mov.b32 d, {a, b} and so on; aux: number of elements | bytes of the whole << 8.
struct Pack {
  static void run(uint32_t* regs, const uint32_t* slots, uint32_t mask, uint32_t aux) {
    const uint32_t count = aux & 0xff, bits = (aux >> 8) * 8 / count;
    for_lanes(mask, SEQTILE_SIM_LANE(uint64_t whole = 0; for (uint32_t k = 0; k < count; ++k) {
                const uint64_t part = Lanes<uint32_t>(regs, slots[1 + k])[i];
                whole |= (bits == 32 ? part : part & ((uint64_t{1} << bits) - 1)) << (k * bits);
              } if (aux >> 8 == 8) Lanes<uint64_t>(regs, slots[0])
                                                             .set(i, whole);
                                     else Lanes<uint32_t>(regs, slots[0]).set(i, static_cast<uint32_t>(whole));));
  }
};

struct Unpack {
  static void run(uint32_t* regs, const uint32_t* slots, uint32_t mask, uint32_t aux) {
    const uint32_t count = aux & 0xff, bits = (aux >> 8) * 8 / count;
    for_lanes(mask,
              SEQTILE_SIM_LANE(const uint64_t whole = aux >> 8 == 8 ? Lanes<uint64_t>(regs, slots[count])[i]
                                                                    : Lanes<uint32_t>(regs, slots[count])[i];
                               for (uint32_t k = 0; k < count; ++k) {
                                 const auto part = static_cast<uint32_t>(whole >> (k * bits));
                                 Lanes<uint32_t>(regs, slots[k]).set(i, bits == 32 ? part : part & ((1u << bits) - 1));
                               }));
  }
};

/// Moves the window: aux is the upper half of the 64-bit generic address of the space.
struct ToGeneric {
  SEQTILE_SIM_INLINE static void run(uint32_t* regs, const uint32_t* slots, uint32_t mask, uint32_t aux) {
    const Lanes<uint64_t> d(regs, slots[0]), a(regs, slots[1]);
    for_lanes(mask, SEQTILE_SIM_LANE(d.set(i, a[i] | uint64_t{aux} << 32)));
  }
};
struct FromGeneric {
  SEQTILE_SIM_INLINE static void run(uint32_t* regs, const uint32_t* slots, uint32_t mask, uint32_t aux) {
    const Lanes<uint64_t> d(regs, slots[0]), a(regs, slots[1]);
    for_lanes(mask, SEQTILE_SIM_LANE(d.set(i, a[i] & ~(uint64_t{aux} << 32))));
  }
};

/// aux: the upper half of the window; 0 asks for global memory, which has none.
struct IsInSpace {
  static void run(uint32_t* regs, const uint32_t* slots, uint32_t mask, uint32_t aux) {
    constexpr uint64_t kWindows = kSharedWindow | kLocalWindow | kParamWindow;
    const Lanes<Predicate> p(regs, slots[0]);
    const Lanes<uint64_t> a(regs, slots[1]);
    for_lanes(mask, [&](int i) { p.set(i, (a[i] & kWindows) == uint64_t{aux} << 32); });
  }
};

std::optional<uint32_t> window_of(std::string_view space) {
  if (space == "global" || space == "const") return 0;
  if (space == "shared" || space == "shared::cta" || space == "shared::cluster")
    return static_cast<uint32_t>(kSharedWindow >> 32);
  if (space == "local") return static_cast<uint32_t>(kLocalWindow >> 32);
  if (space == "param") return 0;  // addresses of parameters are generic ones from the start
  return {};
}

/// Constant memory is not told from global memory by its address, so that question is refused.
std::optional<ScalarForm> space_question(const Opcode& op, std::span<const OperandShape> shapes) {
  if (op.parts.size() != 2 || shapes.size() != 2 || shapes[1].bytes != 8 || op.parts[1] == "const") return {};
  const auto window =
      op.parts[1].substr(0, 5) == "param" ? static_cast<uint32_t>(kParamWindow >> 32) : window_of(op.parts[1]);
  return window ? std::optional(ScalarForm{plain<IsInSpace>(), *window, "px"}) : std::nullopt;
}

std::optional<ScalarForm> convert_address(const Opcode& op) {
  const bool is_to = op.parts.size() == 4 && op.parts[1] == "to";
  if (op.type() != PtxType::u64 || (op.parts.size() != 3 && !is_to)) return {};
  const auto window = window_of(op.parts[is_to ? 2 : 1]);
  if (!window) return {};
  return ScalarForm{is_to ? plain<FromGeneric>() : plain<ToGeneric>(), *window, "xx"};
}

}  // namespace

std::optional<ScalarForm> resolve_move(const Opcode& op, std::span<const OperandShape> shapes) {
  if (op.base() == "cvta") return convert_address(op);
  if (op.base() == "isspacep") return space_question(op, shapes);
  if (op.base() != "mov" || op.parts.size() != 2 || shapes.size() != 2) return {};
  const PtxType type = op.type();
  const int bytes = ptx_type_bytes(type);
  const std::string whole = operand_letters(type, 1);
  if (const int count = shapes[1].vector; count > 0 && bytes <= 8)
    return ScalarForm{plain<Pack>(), static_cast<uint32_t>(count | bytes << 8), whole + std::string(count, 'w')};
  if (const int count = shapes[0].vector; count > 0 && bytes <= 8)
    return ScalarForm{plain<Unpack>(), static_cast<uint32_t>(count | bytes << 8), std::string(count, 'w') + whole,
                      count};
  if (type == PtxType::pred || bytes == 2 || bytes == 4)
    return ScalarForm{select<Unary<Copy, uint32_t, uint32_t>>(), 0, whole + whole};
  if (bytes == 8) return ScalarForm{select<Unary<Copy, uint64_t, uint64_t>>(), 0, "xx"};
  return {};
}

}  // namespace seqtile::sim
