// jit/timeline.h -- what the kernels of a channel do and when: programs, flags that are sent, waited for, and come.
// SPDX-License-Identifier: Apache-2.0
//
// While a Timeline of a channel lives, its kernels write events into a ring in device memory; without one they look at
// one word. Times of all ranks of a machine are of one clock. docs/seqpar/guide.md#timeline
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "jit/base/timeline_block.h"
#include "jit/channel.h"

namespace seqtile {

struct TimelineEvent {
  int64_t time_ns, epoch;
  std::string role;  ///< of the program, as its protocol names it; "last" awaits the rest
  timeline::Kind kind;
  int64_t phase, peer, chunk;  ///< of flags
  int64_t program;             ///< its place in the grid
};

class Timeline {
 public:
  /// The launches that follow write, until the channel is reset or grows; of more than `num_events` events the newest
  /// are kept. One timeline a channel, which outlives it. Waits for the launches before.
  /// Errors: invalid_argument (num_events < 1), out_of_resources.
  Timeline(Channel& channel, int64_t num_events);
  Timeline(const Timeline&) = delete;
  Timeline& operator=(const Timeline&) = delete;
  ~Timeline();
  /// Oldest first. Waits for the launches before.
  std::vector<TimelineEvent> events() const;

 private:
  void tell_kernels(uint64_t address);

  Channel& channel_;
  const int64_t num_events_;
  DeviceBuffer buffer_;
};

/// Chrome's trace format, which Perfetto opens: a process for each rank, in it a track for each program at a time, and
/// arrows from the flags that are sent to where they are awaited.
std::string chrome_trace(std::span<const std::vector<TimelineEvent>> ranks);
/// The same as a picture; what a span is stands in its tooltip.
std::string timeline_svg(std::span<const std::vector<TimelineEvent>> ranks);

}  // namespace seqtile
