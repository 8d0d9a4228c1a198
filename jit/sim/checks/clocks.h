// jit/sim/checks/clocks.h -- vector clocks: how much of every thread's past each thread has seen.
// SPDX-License-Identifier: Apache-2.0
//
// A thread of the analysis is a warp. Entry t of a clock is how much of thread t's past is known to lie before this
// moment; a thread raises its own entry whenever it publishes (barrier, release, arrival). Access a happened before
// access b when b's clock has reached a's entry. Beside the warps a clock holds one entry per CTA for its tensor
// copies, one per warp for the wgmma that this warp has waited for, and one per CTA that counts the inits of
// mbarriers that fence.mbarrier_init has made visible.
#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

namespace seqtile::sim {

using Clock = std::vector<uint32_t>;
using ClockSnapshot = std::shared_ptr<const Clock>;

inline void join(Clock& into, const Clock& other) {
  if (into.size() < other.size()) into.resize(other.size());
  uint32_t* a = into.data();
  const uint32_t* b = other.data();
  const size_t size = other.size();
#ifndef __clang__  // which finds out by itself
#pragma GCC ivdep
#endif
  for (size_t i = 0; i < size; ++i) a[i] = a[i] < b[i] ? b[i] : a[i];
}

/// Knowledge about CTAs that run apart: cohort number -> their clock. Shared between holders, replaced when it grows.
using ForeignClocks = std::shared_ptr<const std::map<uint32_t, ClockSnapshot>>;
void merge(ForeignClocks& into, const ForeignClocks& other);
/// Adds one cohort's clock.
void merge(ForeignClocks& into, uint32_t cohort, const ClockSnapshot& clock);

}  // namespace seqtile::sim
