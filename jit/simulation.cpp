// jit/simulation.cpp -- see simulation.h.
// SPDX-License-Identifier: Apache-2.0
#include "jit/simulation.h"

#include "jit/device/device_wrapper.h"
#include "jit/sim/device/sim_device.h"
#include "seqtile/error.h"

#include <fmt/format.h>

namespace seqtile {
namespace {

sim::SimDevice* simulator(Device& device) { return dynamic_cast<sim::SimDevice*>(&innermost(device)); }
const sim::SimDevice* simulator(const Device& device) {
  return dynamic_cast<const sim::SimDevice*>(&innermost(device));
}

}  // namespace

bool is_simulated(const Device& device) { return simulator(device) != nullptr; }

void name_memory(Device& device, const void* pointer, const std::string& name) {
  if (auto* simulated = simulator(device)) simulated->name_memory(pointer, name);
}

void poison_memory(Device& device, const void* pointer, size_t bytes) {
  if (auto* simulated = simulator(device)) simulated->machine().poison(pointer, bytes);
}

void unpoison_memory(Device& device, const void* pointer, size_t bytes) {
  if (auto* simulated = simulator(device)) simulated->machine().unpoison(pointer, bytes);
}

void set_simulation(Device& device, const SimulationOptions& options) {
  auto* simulated = simulator(device);
  if (!simulated) return;
  simulated->options().profile = options.profile;
  simulated->options().seed = options.seed;
}

SimulationProgress simulation_progress(const Device& device) {
  const auto* simulated = simulator(device);
  if (!simulated) return {};
  const sim::LaunchProgress& now = simulated->progress();
  return {now.is_running, now.ctas, now.ctas_done, now.warp_instructions};
}

SimulatedLaunch last_launch(const Device& device) {
  const auto* simulated = simulator(device);
  if (!simulated)
    throw Error(ErrorCode::unsupported, fmt::format("device {} is not simulated; use sim:sm_80", device.info().name));
  const sim::LaunchResult& result = simulated->last_launch();
  SimulatedLaunch launch;
  for (const sim::Report& report : result.reports) launch.reports.push_back(report.message);
  launch.num_reports = result.num_reports;
  launch.counters = result.counters.named();
  return launch;
}

}  // namespace seqtile
