// jit/timeline/timeline.h -- when the kernels of a channel do what: programs begin and end, flags are sent, awaited,
// arrive.
// SPDX-License-Identifier: Apache-2.0
//
// While a channel has a Timeline, its kernels write events into a ring in device memory. Without a Timeline they read
// one word and write nothing. All ranks of a machine use one clock. docs/seqpar/guide.md#timeline
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "jit/abi/timeline_block.h"
#include "jit/fabric/core/channel.h"

namespace seqtile {

struct TimelineEvent {
  int64_t time_ns, epoch;
  std::string role;  ///< the program's role, as its protocol names it; "last" awaits the rest
  timeline::Kind kind;
  int64_t phase, peer, chunk;  ///< events of flags only
  int64_t program;             ///< its place in the grid
};

class Timeline {
 public:
  /// Later launches write events, until the channel is reset or grows. The newest `num_events` events are kept. A
  /// channel has one timeline at a time, and outlives it. Waits for the launches before.
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
/// The events as an SVG picture; the tooltip of a span names it.
std::string timeline_svg(std::span<const std::vector<TimelineEvent>> ranks);

}  // namespace seqtile
