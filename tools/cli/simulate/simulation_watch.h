// tools/cli/simulate/simulation_watch.h -- says on standard error how far a long simulated launch has come.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

#include "jit/simulation.h"

namespace seqtile::cli {

/// Looks twice a second, from a thread of its own, until it is destroyed.
class SimulationWatch {
 public:
  explicit SimulationWatch(std::function<SimulationProgress()> look);
  ~SimulationWatch();
  SimulationWatch(const SimulationWatch&) = delete;
  SimulationWatch& operator=(const SimulationWatch&) = delete;

 private:
  void run();

  std::function<SimulationProgress()> look_;
  std::mutex mutex_;
  std::condition_variable over_;
  bool is_over_ = false;
  std::thread thread_;
};

}  // namespace seqtile::cli
