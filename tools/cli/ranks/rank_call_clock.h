// tools/cli/ranks/rank_call_clock.h -- times fused calls on CPU ranks from the entry to the first program.
// SPDX-License-Identifier: Apache-2.0
//
// The clock reads a channel's timeline, which has the start times of an epoch's programs by the host's clock.
#pragma once
#include <chrono>
#include <cstdint>
#include <vector>

#include "seqtile/fabric.h"

namespace seqtile::cli {

class RankCallClock {
 public:
  explicit RankCallClock(Channel& channel) : channel_(channel), timeline_(channel, kEvents) {}

  /// Called before the first call of a group. Waits for earlier launches.
  void begin_group() {
    first_epoch_ = static_cast<int64_t>(channel_.epoch()) + 1;
    entries_ns_.clear();
  }
  void begin_call() {
    const auto now = std::chrono::steady_clock::now().time_since_epoch();
    entries_ns_.push_back(std::chrono::duration_cast<std::chrono::nanoseconds>(now).count());
  }
  /// Microseconds from entry to first program, of each call in the group whose event is still in the timeline's ring.
  std::vector<double> call_us() const {
    std::vector<double> times;
    for (const TimelineEvent& event : timeline_.events()) {
      const int64_t call = event.epoch - first_epoch_;
      if (event.kind == timeline::begin && event.program == 0 && call >= 0 && call < std::ssize(entries_ns_))
        times.push_back(1e-3 * static_cast<double>(event.time_ns - entries_ns_[static_cast<size_t>(call)]));
    }
    return times;
  }

 private:
  static constexpr int64_t kEvents = 1 << 14;

  Channel& channel_;
  Timeline timeline_;
  int64_t first_epoch_ = 0;
  std::vector<int64_t> entries_ns_;  ///< entries of the group's calls
};

}  // namespace seqtile::cli
