// jit/sim/device/counted_launch.h -- counts what a kernel does: the PTX machine (docs/ptx_machine.md) executes its PTX.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>

#include "seqtile/device.h"

namespace seqtile {

struct LaunchCounts {
  uint64_t warp_instructions = 0;
  uint64_t products = 0;           ///< mma.sync instructions of warps, wgmma instructions of warp groups
  uint64_t global_sectors = 0;     ///< a sector has 32 bytes
  uint64_t shared_wavefronts = 0;  ///< conflicts included
  uint64_t bank_conflicts = 0;
};

/// Runs a small launch without checks other than bounds. `memory`: all that the kernel may touch, in host memory.
/// Errors: compile_failed or unsupported where the machine does not know the text; driver for what the kernel does
/// wrong; timeout where a cluster executes more than four million warp instructions.
LaunchCounts count_launch(const KernelBinary& binary, const Grid& grid, std::span<const uint64_t> slots,
                          std::span<const std::span<std::byte>> memory);

}  // namespace seqtile
