// bench/peers/cuda_launch.h -- the driver's own launch, the baseline of a call's host time.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cstdint>
#include <memory>
#include <span>

#include "seqtile/device.h"

namespace seqtile::bench {

class CudaLaunch {
 public:
  virtual ~CudaLaunch() = default;
  /// One cuLaunchKernel with nothing around it. Errors: driver.
  virtual void operator()(const Grid& grid, std::span<const uint64_t> slots, Stream stream) = 0;
};

/// Loads `kernel` on GPU `ordinal`. The GPU's context stays current on the calling thread. Null without a driver.
/// Errors: driver; invalid_argument for a kernel that needs more than slots and a grid.
std::unique_ptr<CudaLaunch> open_cuda_launch(const KernelBinary& kernel, int ordinal);

}  // namespace seqtile::bench
