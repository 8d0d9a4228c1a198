// jit/device.h -- a place where kernels run: the host CPU now, GPUs and simulated GPUs by the same interface.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "jit/executor.h"
#include "jit/kernel.h"
#include "jit/target.h"

namespace seqtile {

/// Identity of a device: what enters the key of every tuning record.
struct DeviceInfo {
  std::string kind;                                        ///< "cpu"
  std::string name;                                        ///< "AMD EPYC", for people
  std::vector<std::pair<std::string, std::string>> facts;  ///< model, target, cores, cache sizes: sorted by name
};

/// A binary made executable on a device; the mapping lives as long as this object.
class LoadedKernel {
 public:
  virtual ~LoadedKernel() = default;
  const KernelBinary& binary() const { return binary_; }

 protected:
  explicit LoadedKernel(KernelBinary binary) : binary_(std::move(binary)) {}
  KernelBinary binary_;
};

/// Part of a grid in linear order (axis 0 fastest); count < 0 means all of it.
struct GridRange {
  int64_t first = 0, count = -1;
};

class Device {
 public:
  virtual ~Device() = default;
  virtual const DeviceInfo& info() const = 0;
  virtual const Target& target() const = 0;
  /// Maps the binary. Errors: invalid_argument on another target's binary; out_of_resources.
  virtual std::unique_ptr<LoadedKernel> load(KernelBinary binary) = 0;
  /// One launch: runs `grid` programs with the argument block `slots` (see ir::num_slots). Returns when the launch is
  /// handed off; on the CPU that is when it is done. No allocation, no lock before the hand-off.
  virtual void launch(const LoadedKernel& kernel, const Grid& grid, std::span<const uint64_t> slots,
                      GridRange range = {}) = 0;
};

/// The host CPU with `num_threads` workers of our own, or the caller's executor (not owned).
std::unique_ptr<Device> make_cpu_device(int num_threads);
std::unique_ptr<Device> make_cpu_device(Executor& executor);

/// Cores that this process may use: containers and taskset leave a part of the machine's.
int cores_available();
/// "cpu", with all of those cores where `num_threads` is 0.
/// Errors: unsupported for devices that are not in this machine or build ("cuda": no driver).
std::unique_ptr<Device> open_device(const std::string& name, int num_threads);
/// Every device found, for `seqtile devices`.
std::vector<DeviceInfo> list_devices();

}  // namespace seqtile
