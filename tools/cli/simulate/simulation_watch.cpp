// tools/cli/simulate/simulation_watch.cpp -- see simulation_watch.h.
// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/simulate/simulation_watch.h"

#include <fmt/format.h>

#include <chrono>
#include <utility>

#include "tools/cli/output.h"

namespace seqtile::cli {
namespace {

std::string activity(const SimulationProgress& now) {
  if (now.is_running)
    return fmt::format("{} of {} ended, {} warp instructions", format_count(now.blocks_done),
                       format_counted(now.blocks, "block"), format_count(static_cast<int64_t>(now.warp_instructions)));
  return now.blocks == 0 ? "operands" : "the reference";
}

}  // namespace

SimulationWatch::SimulationWatch(std::function<SimulationProgress()> look)
    : look_(std::move(look)), thread_([this] { run(); }) {}

SimulationWatch::~SimulationWatch() {
  {
    const std::lock_guard lock(mutex_);
    is_over_ = true;
  }
  over_.notify_one();
  thread_.join();
}

void SimulationWatch::run() {
  Progress progress("simulate");
  const auto start = std::chrono::steady_clock::now();
  std::unique_lock lock(mutex_);
  while (!over_.wait_for(lock, std::chrono::milliseconds(500), [this] { return is_over_; })) {
    const SimulationProgress now = look_();
    const double elapsed_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    progress.update({activity(now), now.blocks_done, now.blocks, 0, elapsed_s, 0});
  }
}

}  // namespace seqtile::cli
