// autotune/call/device_mirror.h -- copies of host memory on a device whose kernels do not reach host memory.
// SPDX-License-Identifier: Apache-2.0
//
// Calls are made and checked in host memory, and launches need addresses of the device. If kernels reach host memory,
// the device address is the host address and nothing is copied.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "seqtile/device.h"
#include "seqtile/tensor.h"

namespace seqtile::autotune {

class DeviceMirror {
 public:
  explicit DeviceMirror(Device& device) : device_(device), is_host_(device.memory().is_host()) {}

  /// Allocates a device copy of `host`, unless `host` begins an added range. Addresses of both agree modulo 256. `name`
  /// is for reports. `holds_addresses`: every transfer translates the words that are addresses of mirrored memory.
  /// Requires: `host` outlives the mirror. Errors: out_of_resources.
  void add(std::span<std::byte> host, const std::string& name, bool holds_addresses = false);
  /// Copies everything to the device, and waits for the copies.
  void upload();
  /// Waits for the device, then copies everything to the host.
  void download();
  /// Copies the range `host` to the device, and waits for the copy. Errors: internal if it was not added.
  void upload(std::span<const std::byte> host);
  /// The device address of `host`; null for null. Errors: internal if `host` was not added.
  void* at(const void* host) const;
  /// The tensors with device addresses. Errors: internal if the data of a tensor was not added.
  std::vector<Tensor> at(std::span<const Tensor> tensors) const;

 private:
  struct Part {
    std::span<std::byte> host;
    DeviceBuffer memory;
    std::byte* device = nullptr;
    bool holds_addresses = false;
  };
  enum class Side { host, device };
  const Part& part_of(const void* host) const;
  void translate(std::span<std::byte> words, Side to) const;

  Device& device_;
  bool is_host_;
  std::vector<Part> parts_;
};

}  // namespace seqtile::autotune
