// jit/sim/device/counted_launch.cpp -- see counted_launch.h.
// SPDX-License-Identifier: Apache-2.0
#include "jit/sim/device/counted_launch.h"

#include "jit/sim/device/sim_device.h"

namespace seqtile {

LaunchCounts count_launch(const KernelBinary& binary, const Grid& grid, std::span<const uint64_t> slots,
                          std::span<const std::span<std::byte>> memory) {
  constexpr uint64_t kMostInstructions = uint64_t{1} << 22;
  const auto device = sim::make_sim_device(binary.target);
  device->options().checks = sim::Checks::none();
  device->options().profile = true;
  device->options().instruction_limit = kMostInstructions;
  for (const auto& part : memory) device->register_memory("memory", part);
  const auto kernel = device->load(binary);
  device->launch(*kernel, grid, slots);
  const sim::Counters& c = device->last_launch().counters;
  return {c.warp_instructions, c.mma + c.wgmma, c.global_sectors, c.shared_accesses + c.bank_conflicts,
          c.bank_conflicts};
}

}  // namespace seqtile
