// tools/cli/serve/call_clock.h -- times calls from the entry to the first program.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <atomic>
#include <chrono>
#include <cstdint>

#include "seqtile/device.h"

namespace seqtile::cli {

/// An executor that notes when the first program of a run starts; another executor does the work.
class CallClock : public Executor {
 public:
  explicit CallClock(Executor& inner) : inner_(inner) {}

  int num_workers() const override { return inner_.num_workers(); }
  void run(int64_t count, Task task, void* context) override {
    Frame frame{this, task, context};
    inner_.run(count, start, &frame);
  }

  void begin_call() {
    first_ns_.store(0, std::memory_order_relaxed);
    begin_ns_ = now_ns();
  }
  /// Microseconds from begin_call() to the first program; negative if none has run.
  double first_program_us() const {
    const int64_t first = first_ns_.load(std::memory_order_relaxed);
    return first == 0 ? -1 : 1e-3 * static_cast<double>(first - begin_ns_);
  }

 private:
  struct Frame {
    CallClock* clock;
    Task task;
    void* context;
  };
  static int64_t now_ns() {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
  }
  static void start(void* context, int64_t begin, int64_t end) {
    const Frame& frame = *static_cast<const Frame*>(context);
    std::atomic<int64_t>& first = frame.clock->first_ns_;
    if (first.load(std::memory_order_relaxed) == 0) {
      int64_t none = 0;
      first.compare_exchange_strong(none, now_ns(), std::memory_order_relaxed);
    }
    frame.task(frame.context, begin, end);
  }

  Executor& inner_;
  int64_t begin_ns_ = 0;
  std::atomic<int64_t> first_ns_{0};
};

}  // namespace seqtile::cli
