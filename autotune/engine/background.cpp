// autotune/engine/background.cpp -- see background.h.
// SPDX-License-Identifier: Apache-2.0
#include "autotune/engine/background.h"

#include <chrono>

#include "jit/base/log.h"

namespace seqtile::autotune {

BackgroundTuner::BackgroundTuner(std::function<States()> states)
    : states_(std::move(states)), thread_([this] { run(); }) {}

BackgroundTuner::~BackgroundTuner() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

void BackgroundTuner::run() {
  constexpr auto kPeriod = std::chrono::milliseconds(100);
  while (!stop_) {
    for (const auto& state : states_()) {
      try {
        state->tune_wanted(stop_);
      } catch (const std::exception& error) {
        log_line(LogLevel::warning, std::string("background tuning: ") + error.what());
      }
    }
    std::unique_lock lock(mutex_);
    wake_.wait_for(lock, kPeriod, [&] { return stop_.load(); });
  }
}

}  // namespace seqtile::autotune
