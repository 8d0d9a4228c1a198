// autotune/engine/background.h -- the one thread that tunes the buckets that calls have missed (policy background).
// SPDX-License-Identifier: Apache-2.0
//
// A call only sets a flag. The thread looks for flags ten times a second, so that no call wakes it or waits for it.
#pragma once
#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "autotune/engine/handle_state.h"

namespace seqtile::autotune {

class BackgroundTuner {
 public:
  using States = std::vector<std::shared_ptr<Handle::State>>;
  /// `states` returns the states of all prepared operations; the tuning thread calls it.
  explicit BackgroundTuner(std::function<States()> states);
  /// Interrupts a running tuning and waits for the end of its round.
  ~BackgroundTuner();

 private:
  void run();

  std::function<States()> states_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace seqtile::autotune
