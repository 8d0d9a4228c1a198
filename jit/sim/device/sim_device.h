// jit/sim/device/sim_device.h -- a GPU that executes PTX on the CPU, by the interface of every device.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "jit/device/sim_devices.h"
#include "jit/sim/exec/machine.h"

namespace seqtile::sim {

/// Kernels reach only memory that was allocated or registered. Allocated bytes that were never written are poisoned.
/// One launch at a time, whatever its stream.
class SimDevice : public PeerDevice {
 public:
  /// Sets the name that reports use for the allocation that begins at `pointer`; without a name: "memory 1".
  virtual void name_memory(const void* pointer, std::string name) = 0;
  /// Memory of the host that kernels may read and write. Requires: it outlives the device or the next forget_memory().
  virtual void register_memory(std::string name, std::span<std::byte> memory) = 0;
  virtual void forget_memory() = 0;
  virtual Machine& machine() = 0;
  virtual Options& options() = 0;
  virtual const LaunchProgress& progress() const = 0;
  /// The result of the newest launch, for a device alone. GPUs of a world run together; their launches only have
  /// errors.
  virtual const LaunchResult& last_launch() const = 0;
};

/// `target` is "sm_80" or "sm_90a"; the clusters of a grid run on `num_threads` threads. A launch that the machine
/// finds a fault with throws Error driver (timeout: it did not end) with the first report; last_launch() has all.
/// Errors: unsupported for other targets.
std::unique_ptr<SimDevice> make_sim_device(std::string_view target, int num_threads = 1);

}  // namespace seqtile::sim
