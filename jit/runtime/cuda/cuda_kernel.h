// jit/runtime/cuda/cuda_kernel.h -- a module of the driver with one kernel, and its launches.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <span>

#include "jit/device/gpu_launch.h"
#include "jit/runtime/cuda/cuda_context.h"
#include "jit/runtime/cuda/tensor_map.h"
#include "seqtile/device.h"
#include "seqtile/target.h"

namespace seqtile::cuda {

class CudaKernel final : public LoadedKernel {
 public:
  /// Loads a cubin, or PTX that the driver compiles.
  /// Errors: invalid_argument for code of another GPU; compile_failed with the driver's own words; out_of_resources,
  /// naming what the kernel needs and the GPU has.
  CudaKernel(const Context& context, const GpuFacts& facts, KernelBinary binary);
  ~CudaKernel() override;

  /// See Device::launch.
  void launch(const Grid& grid, std::span<const uint64_t> slots, Stream stream) const;

 private:
  void check_code(const GpuFacts& facts) const;
  void load_module();
  void check_occupancy(const GpuFacts& facts);
  void reserve_shared(const GpuFacts& facts) const;
  /// `parameters`: the address of each parameter.
  void submit(const GpuGrid& grid, void** parameters, Stream stream) const;

  const Context& context_;
  CUmodule module_ = nullptr;
  CUfunction function_ = nullptr;
  int64_t resident_blocks_ = 0;  ///< how many blocks run on the device at once
};

}  // namespace seqtile::cuda
