// tests/jit/runtime/cpu/executor_runs.h -- runs that say whether an executor did what it should.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>
#include <vector>

#include "seqtile/device.h"

namespace seqtile::test {

/// Runs `count` items that count themselves. True if each item ran exactly once.
inline bool runs_each_item_once(Executor& executor, int64_t count) {
  std::vector<std::atomic<int>> hits(static_cast<size_t>(count));
  executor.run(
      count,
      [](void* context, int64_t begin, int64_t end) {
        auto& items = *static_cast<std::vector<std::atomic<int>>*>(context);
        for (int64_t i = begin; i < end; ++i) items[static_cast<size_t>(i)].fetch_add(1, std::memory_order_relaxed);
      },
      &hits);
  for (const auto& hit : hits)
    if (hit.load() != 1) return false;
  return true;
}

/// True if three threads work on one run at once: each of its items waits for the two others, for minutes.
inline bool three_threads_meet(Executor& executor) {
  struct Meeting {
    const std::chrono::steady_clock::time_point end = std::chrono::steady_clock::now() + std::chrono::minutes(5);
    std::atomic<int> arrived{0}, met{0};
  } meeting;
  executor.run(
      3,
      [](void* context, int64_t first, int64_t last) {
        auto& all = *static_cast<Meeting*>(context);
        for (int64_t i = first; i < last; ++i) {
          all.arrived.fetch_add(1);
          while (all.arrived.load() < 3 && std::chrono::steady_clock::now() < all.end) std::this_thread::yield();
          all.met.fetch_add(all.arrived.load() == 3);
        }
      },
      &meeting);
  return meeting.met.load() == 3;
}

}  // namespace seqtile::test
