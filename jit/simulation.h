// jit/simulation.h -- reports, counters and settings that only simulated GPUs have (docs/ptx_machine.md).
// SPDX-License-Identifier: Apache-2.0
//
// The functions take any device. Functions that only tell the simulator something do nothing on other devices.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "seqtile/device.h"

namespace seqtile {

/// A launch as the machine saw it.
struct SimulatedLaunch {
  std::vector<std::string> reports;  ///< the first of each kind and line: kernel, PTX line, CTA, warp, lane, address
  size_t num_reports = 0;            ///< all of them
  /// Name and value of every counter. Instruction classes, sectors, bytes and conflicts are counted with
  /// SimulationOptions::profile only.
  std::vector<std::pair<std::string, uint64_t>> counters;
};

bool is_simulated(const Device& device);
/// Gives the allocation that begins at `pointer` the name that reports use.
void name_memory(Device& device, const void* pointer, const std::string& name);
/// From here on the machine reports a kernel that reads these bytes before a kernel writes them.
void poison_memory(Device& device, const void* pointer, size_t bytes);
void unpoison_memory(Device& device, const void* pointer, size_t bytes);
/// Settings for later launches.
struct SimulationOptions {
  bool profile = false;  ///< count everything, which is slower
  uint32_t seed = 0;     ///< seed of a random schedule; 0: warps in turn
};
void set_simulation(Device& device, const SimulationOptions& options);
/// Progress of the launch that runs now, else of the newest one. May be asked from any thread.
struct SimulationProgress {
  bool is_running = false;
  int64_t blocks = 0, blocks_done = 0;  ///< 0 blocks: nothing was launched yet
  uint64_t warp_instructions = 0;       ///< roughly
};
SimulationProgress simulation_progress(const Device& device);
/// The newest launch. Errors: unsupported where the device is not simulated.
SimulatedLaunch last_launch(const Device& device);

}  // namespace seqtile
