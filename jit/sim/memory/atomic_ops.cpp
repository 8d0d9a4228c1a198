// jit/sim/memory/atomic_ops.cpp -- see the header.
// SPDX-License-Identifier: Apache-2.0
#include "jit/sim/memory/atomic_ops.h"

#include <algorithm>
#include <bit>
#include <type_traits>

#include "jit/sim/values/float_formats.h"

namespace seqtile::sim {
namespace {

template <class T>
T combine(AtomicOp op, T old, T value, T compare) {
  switch (op) {
    case AtomicOp::add: return old + value;
    case AtomicOp::min: return std::min(old, value);
    case AtomicOp::max: return std::max(old, value);
    case AtomicOp::exch: return value;
    case AtomicOp::cas: return old == compare ? value : old;
    default: break;
  }
  if constexpr (std::is_unsigned_v<T>) {
    if (op == AtomicOp::inc) return old >= value ? 0 : old + 1;
    if (op == AtomicOp::dec) return old == 0 || old > value ? value : old - 1;
    if (op == AtomicOp::bit_and) return old & value;
    if (op == AtomicOp::bit_or) return old | value;
    if (op == AtomicOp::bit_xor) return old ^ value;
  }
  return old;
}

uint32_t combine_half(AtomicOp op, uint32_t old, uint32_t value, bool is_bfloat) {
  const auto widen = [&](uint32_t bits) {
    return is_bfloat ? bf16_to_float(bits & 0xffff) : half_to_float(bits & 0xffff);
  };
  const auto narrow = [&](float f) { return is_bfloat ? float_to_bf16(f) : float_to_half(f); };
  return narrow(combine<float>(op, widen(old), widen(value), 0));
}

}  // namespace

uint64_t apply_atomic(AtomicOp op, PtxType type, uint64_t old, uint64_t value, uint64_t compare) {
  if (op == AtomicOp::exch) return value;
  if (op == AtomicOp::cas) return old == compare ? value : old;
  const auto old32 = static_cast<uint32_t>(old), value32 = static_cast<uint32_t>(value);
  switch (type) {
    case PtxType::f32:
      return std::bit_cast<uint32_t>(combine(op, std::bit_cast<float>(old32), std::bit_cast<float>(value32), 0.0f));
    case PtxType::f64:
      return std::bit_cast<uint64_t>(combine(op, std::bit_cast<double>(old), std::bit_cast<double>(value), 0.0));
    case PtxType::f16: return combine_half(op, old32, value32, false);
    case PtxType::bf16: return combine_half(op, old32, value32, true);
    case PtxType::f16x2:
    case PtxType::bf16x2: {
      const bool is_bfloat = type == PtxType::bf16x2;
      return combine_half(op, old32, value32, is_bfloat) | combine_half(op, old32 >> 16, value32 >> 16, is_bfloat)
                                                               << 16;
    }
    case PtxType::s32:
      if (op == AtomicOp::min || op == AtomicOp::max)
        return static_cast<uint32_t>(combine(op, static_cast<int32_t>(old32), static_cast<int32_t>(value32), 0));
      return combine(op, old32, value32, 0u);
    case PtxType::s64:
      if (op == AtomicOp::min || op == AtomicOp::max)
        return static_cast<uint64_t>(combine(op, static_cast<int64_t>(old), static_cast<int64_t>(value), int64_t{0}));
      return combine(op, old, value, uint64_t{0});
    default: return ptx_type_bytes(type) == 8 ? combine(op, old, value, uint64_t{0}) : combine(op, old32, value32, 0u);
  }
}

}  // namespace seqtile::sim
