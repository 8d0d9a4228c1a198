// tests/support/fakes/fake_device.h -- a device that runs one C++ loop as its kernel, and counts launches.
// SPDX-License-Identifier: Apache-2.0
//
// A binary holds the JSON of its configuration as code. The loop computes the operation of fake_op.h, y = factor * x +
// row, in blocks of rows. A ticket in the workspace must be zero whenever a program starts.
#pragma once
#include <atomic>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "jit/runtime/cpu/host_memory.h"
#include "seqtile/device.h"

namespace seqtile::test {

class FakeDevice : public Device {
 public:
  FakeDevice();
  const DeviceInfo& info() const override { return info_; }
  const Target& target() const override { return target_; }
  std::unique_ptr<LoadedKernel> load(KernelBinary binary) override;
  DeviceMemory& memory() override { return cpu::host_memory(); }
  DeviceStreams& streams() override { return cpu::host_streams(); }
  void launch(const LoadedKernel& kernel, const Grid& grid, std::span<const uint64_t> slots, Stream stream,
              GridRange range) override;

  DeviceInfo info_;
  Target target_;
  bool computes = true;  ///< false: a launch is only counted
  std::atomic<int64_t> loads{0}, launches{0}, dirty_tickets{0};
  std::atomic<int64_t> last_block{0};  ///< rows per program of the last launch
};

}  // namespace seqtile::test
