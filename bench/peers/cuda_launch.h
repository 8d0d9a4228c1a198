// bench/peers/cuda_launch.h -- the driver's own launch, as the yardstick of what a call of ours costs the host.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cstdint>
#include <memory>
#include <span>

#include "jit/device/device.h"
#include "jit/device/kernel.h"

namespace seqtile::bench {

class CudaLaunch {
 public:
  virtual ~CudaLaunch() = default;
  /// One cuLaunchKernel with nothing around it. Errors: driver.
  virtual void operator()(const Grid& grid, std::span<const uint64_t> slots, Stream stream) = 0;
};

/// `kernel` on the GPU of that number, whose context stays current on the calling thread; null without a driver.
/// Errors: driver; invalid_argument for a kernel whose parameters are more than its slots.
std::unique_ptr<CudaLaunch> open_cuda_launch(const KernelBinary& kernel, int ordinal);

}  // namespace seqtile::bench
