// tests/support/fakes/emulated_device.h -- an AArch64 machine: a Device that runs blobs under qemu-user.
// SPDX-License-Identifier: Apache-2.0
//
// The emulated process shares no memory with this one, so a kernel reaches only what was registered: a slot that holds
// an address inside a registered range becomes that address there, and the ranges are copied back after the launch.
#pragma once
#include <memory>
#include <span>

#include "jit/device/device.h"

namespace seqtile::testing {

class EmulatedDevice : public Device {
 public:
  /// Memory that kernels may read and write; must outlive the device or the next forget_memory().
  virtual void register_memory(std::span<std::byte> memory) = 0;
  virtual void forget_memory() = 0;
};

/// The AArch64 machine (target neon), or null with a line on standard output where qemu-user, a cross compiler or
/// LLVM's AArch64 code generator is missing.
std::unique_ptr<EmulatedDevice> make_emulated_device();

}  // namespace seqtile::testing
