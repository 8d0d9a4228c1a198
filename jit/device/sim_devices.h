// jit/device/sim_devices.h -- simulated GPUs of one machine, as ranks need them.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cstddef>
#include <memory>
#include <string_view>
#include <vector>

#include "seqtile/device.h"

namespace seqtile {

/// A GPU of a world whose GPUs reach each other's memory.
class PeerDevice : public Device {
 public:
  /// Allocates memory that kernels of the world's other GPUs reach too. It is freed like other memory.
  virtual void* allocate_for_peers(size_t bytes) = 0;
};

/// `target` is "sm_80" or "sm_90a". The GPUs' launches, copies and fills are done when they are waited for, all GPUs at
/// a time: see jit/sim/device/sim_world.h. Each GPU is used by a thread of its own. Errors: unsupported for other
/// targets.
std::vector<std::unique_ptr<PeerDevice>> make_sim_devices(std::string_view target, int count);

}  // namespace seqtile
