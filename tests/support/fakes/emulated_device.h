// tests/support/fakes/emulated_device.h -- an AArch64 machine: a Device that runs blobs under qemu-user.
// SPDX-License-Identifier: Apache-2.0
//
// The emulated process shares no memory with this one, so that a kernel reaches only registered memory. A slot with an
// address inside a registered range becomes the address in the emulated process. The ranges are copied back after the
// launch.
#pragma once
#include <memory>
#include <span>

#include "seqtile/device.h"

namespace seqtile::testing {

class EmulatedDevice : public Device {
 public:
  /// Makes memory accessible to kernels. Requires: the memory outlives the device or the next forget_memory().
  virtual void register_memory(std::span<std::byte> memory) = 0;
  virtual void forget_memory() = 0;
};

/// Makes the AArch64 machine (target neon). If qemu-user, a cross compiler or LLVM's AArch64 code generator is missing,
/// prints a line on standard output and returns null.
std::unique_ptr<EmulatedDevice> make_emulated_device();

}  // namespace seqtile::testing
