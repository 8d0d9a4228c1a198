// jit/sim/values/lanes.h -- loops over the 32 lanes of a warp's registers, compiled for the vector width of the host.
// SPDX-License-Identifier: Apache-2.0
//
// A register is an array of 32 values of 4 or 8 bytes; a predicate is 32 words of 0 or ~0, so that it vectorises like
// everything else. A kernel K has one function `run`; select<K>() returns its copy for the widest vectors of this CPU.
// Distinct register slots never overlap in part, so a loop may read and write lanes in any order.
#pragma once
#include <bit>
#include <cstdint>
#include <type_traits>

#include "jit/sim/values/float_formats.h"

#if defined(__x86_64__) && defined(__GNUC__)
#define SEQTILE_SIM_AVX2 __attribute__((target("avx2,fma")))
#define SEQTILE_SIM_AVX512 __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,fma")))
#else
#define SEQTILE_SIM_AVX2
#define SEQTILE_SIM_AVX512
#endif

namespace seqtile::sim {

constexpr int kWarpLanes = 32;
constexpr uint32_t kAllLanes = ~0u;

/// Two words of the register file as one 8-byte lane.
typedef uint64_t WideLane __attribute__((may_alias));

enum class VectorLevel { base, avx2, avx512 };
/// The widest vectors of this CPU; found once.
VectorLevel vector_level();

/// Executes one instruction on `regs` for the lanes of `mask`; slots[0] is the first destination.
using ScalarFn = void (*)(uint32_t* regs, const uint32_t* slots, uint32_t mask, uint32_t aux);

template <class F>
SEQTILE_SIM_INLINE void for_lanes(uint32_t mask, F&& f) {
  if (mask == kAllLanes) {
#ifndef __clang__  // which finds out by itself
#pragma GCC ivdep
#endif
    for (int i = 0; i < kWarpLanes; ++i) f(i);
  } else {
    for (uint32_t left = mask; left != 0; left &= left - 1) f(std::countr_zero(left));
  }
}

struct Predicate {};

/// The lanes of one register as values of type T. Narrow types live in the low bits of a word, zero extended.
template <class T>
class Lanes {
  static constexpr bool kIsNarrow = sizeof(T) < 4;
  using Plain = std::conditional_t<kIsNarrow, uint32_t, T>;
  typedef Plain Aliasing __attribute__((may_alias));

 public:
  SEQTILE_SIM_INLINE Lanes(uint32_t* regs, uint32_t slot)
      : data_(reinterpret_cast<Aliasing*>(regs + slot * kWarpLanes)) {}
  SEQTILE_SIM_INLINE T operator[](int lane) const {
    if constexpr (kIsNarrow) return static_cast<T>(data_[lane]);
    else return data_[lane];
  }
  SEQTILE_SIM_INLINE void set(int lane, T value) const {
    if constexpr (kIsNarrow) data_[lane] = static_cast<std::make_unsigned_t<T>>(value);
    else data_[lane] = value;
  }

 private:
  Aliasing* data_;
};

template <>
class Lanes<Predicate> {
 public:
  SEQTILE_SIM_INLINE Lanes(uint32_t* regs, uint32_t slot) : data_(regs + slot * kWarpLanes) {}
  SEQTILE_SIM_INLINE bool operator[](int lane) const { return data_[lane] != 0; }
  SEQTILE_SIM_INLINE void set(int lane, bool value) const { data_[lane] = value ? ~0u : 0u; }

 private:
  uint32_t* data_;
};

template <class K>
struct LevelCopies {
  static void base(uint32_t* regs, const uint32_t* slots, uint32_t mask, uint32_t aux) {
    K::run(regs, slots, mask, aux);
  }
  SEQTILE_SIM_AVX2 static void avx2(uint32_t* regs, const uint32_t* slots, uint32_t mask, uint32_t aux) {
    K::run(regs, slots, mask, aux);
  }
  SEQTILE_SIM_AVX512 static void avx512(uint32_t* regs, const uint32_t* slots, uint32_t mask, uint32_t aux) {
    K::run(regs, slots, mask, aux);
  }
};

template <class K>
ScalarFn select() {
  switch (vector_level()) {
    case VectorLevel::avx512: return LevelCopies<K>::avx512;
    case VectorLevel::avx2: return LevelCopies<K>::avx2;
    default: return LevelCopies<K>::base;
  }
}

/// For forms that are rare enough to need no copies.
template <class K>
ScalarFn plain() {
  return LevelCopies<K>::base;
}

#define SEQTILE_SIM_LANE(...) \
  [&](int i) __attribute__((always_inline)) { __VA_ARGS__; }

template <class Op, class D, class A>
struct Unary {
  SEQTILE_SIM_INLINE static void run(uint32_t* regs, const uint32_t* slots, uint32_t mask, uint32_t) {
    const Lanes<D> d(regs, slots[0]);
    const Lanes<A> a(regs, slots[1]);
    for_lanes(mask, SEQTILE_SIM_LANE(d.set(i, Op::apply(a[i]))));
  }
};

template <class Op, class D, class A, class B = A>
struct Binary {
  SEQTILE_SIM_INLINE static void run(uint32_t* regs, const uint32_t* slots, uint32_t mask, uint32_t) {
    const Lanes<D> d(regs, slots[0]);
    const Lanes<A> a(regs, slots[1]);
    const Lanes<B> b(regs, slots[2]);
    for_lanes(mask, SEQTILE_SIM_LANE(d.set(i, Op::apply(a[i], b[i]))));
  }
};

template <class Op, class D, class A, class B = A, class C = B>
struct Ternary {
  SEQTILE_SIM_INLINE static void run(uint32_t* regs, const uint32_t* slots, uint32_t mask, uint32_t) {
    const Lanes<D> d(regs, slots[0]);
    const Lanes<A> a(regs, slots[1]);
    const Lanes<B> b(regs, slots[2]);
    const Lanes<C> c(regs, slots[3]);
    for_lanes(mask, SEQTILE_SIM_LANE(d.set(i, Op::apply(a[i], b[i], c[i]))));
  }
};

}  // namespace seqtile::sim
