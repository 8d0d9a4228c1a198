// autotune/call/device_mirror.h -- host memory doubled on a device whose kernels do not reach the host's.
// SPDX-License-Identifier: Apache-2.0
//
// Calls are made and checked in host memory; a launch needs its addresses on the device. Where kernels reach host
// memory a mirror is the memory itself and copies nothing.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "jit/device/device.h"
#include "jit/device/tensor.h"

namespace seqtile::autotune {

class DeviceMirror {
 public:
  explicit DeviceMirror(Device& device) : device_(device), is_host_(device.memory().is_host()) {}

  /// Doubles `host`, which outlives the mirror, unless it is there already; addresses agree modulo 256. `name` is for
  /// reports. `holds_addresses`: words that are addresses of doubled memory are those of the other side there, whatever
  /// is copied in either direction.
  /// Errors: out_of_resources.
  void add(std::span<std::byte> host, const std::string& name, bool holds_addresses = false);
  /// All of it, or the part that begins at `host`; upload() ends before it returns, download()
  /// waits for the device.
  void upload();
  void download();
  void upload(std::span<const std::byte> host);
  /// The address that stands for `host`; null for null. Errors: internal where it was not added.
  void* at(const void* host) const;
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
