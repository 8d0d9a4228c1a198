// jit/abi/timeline_events.h -- the events of a timeline, as kernels write them.
// SPDX-License-Identifier: Apache-2.0
//
// Kernels write the events of a timeline as 64-bit words into memory of the rank's device: first the number of events
// that were ever written, in a place as large as an event, then the newest events as a ring. The control block has
// their address (channel::timeline).
#pragma once
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "seqtile/abi.h"

namespace seqtile::timeline {

enum EventWord : int64_t { time_ns, epoch, role, kind, phase, peer, chunk, program, num_event_words };

/// A role's name, up to eight letters, as a word.
constexpr int64_t role_word(std::string_view name) {
  uint64_t word = 0;
  for (size_t i = 0; i < name.size() && i < 8; ++i) word |= uint64_t{static_cast<uint8_t>(name[i])} << 8 * i;
  return static_cast<int64_t>(word);
}

/// Nanoseconds, the same clock on all ranks. CPUs only: GPUs have one of their own.
using ClockFunction = int64_t (*)();

}  // namespace seqtile::timeline
