// tools/cli/simulate/simulation_watch.h -- prints the progress of a long simulated launch on standard error.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

#include "jit/simulation.h"

namespace seqtile::cli {

/// Looks at the progress twice a second, on a thread of its own, until the object is destroyed.
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
