// jit/device/device_wrapper.h -- a device that hands everything on to another one; subclasses replace what they change.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "seqtile/device.h"

namespace seqtile {

/// Kernels that it loads are those of `inner`; a subclass that wraps kernels overrides load() and launch() together.
class DeviceWrapper : public Device {
 public:
  explicit DeviceWrapper(std::shared_ptr<Device> inner) : inner_(std::move(inner)) {}

  Device& inner() const { return *inner_; }
  const DeviceInfo& info() const override { return inner_->info(); }
  const Target& target() const override { return inner_->target(); }
  DeviceMemory& memory() override { return inner_->memory(); }
  DeviceStreams& streams() override { return inner_->streams(); }
  std::string condition() override { return inner_->condition(); }
  std::unique_ptr<LoadedKernel> load(KernelBinary binary) override { return inner_->load(std::move(binary)); }
  void launch(const LoadedKernel& kernel, const Grid& grid, std::span<const uint64_t> slots, Stream stream,
              GridRange range) override {
    inner_->launch(kernel, grid, slots, stream, range);
  }

 private:
  std::shared_ptr<Device> inner_;
};

/// The device inside all wrappers, which may be `device` itself.
inline const Device& innermost(const Device& device) {
  const auto* wrapper = dynamic_cast<const DeviceWrapper*>(&device);
  return wrapper ? innermost(wrapper->inner()) : device;
}
inline Device& innermost(Device& device) { return const_cast<Device&>(innermost(std::as_const(device))); }

}  // namespace seqtile
