// bench/gpu/gpu_call.h -- a call of an operation in GPU memory, through the engine or without it.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <span>
#include <vector>

#include "autotune/engine/launch.h"
#include "seqtile/engine.h"
#include "seqtile/op.h"

namespace seqtile::bench {

/// The tensors of one call in device memory. Inputs are filled as fill_input() does.
class GpuCall {
 public:
  GpuCall(Device& device, const autotune::OpDef& op, const Handle& handle, int64_t length);
  const std::vector<Tensor>& tensors() const { return tensors_; }
  const std::vector<int64_t>& symbols() const { return symbols_; }
  std::span<const int64_t> scalars(const Handle& handle) const {
    return std::span(symbols_).last(handle.schema().scalars.size());
  }
  int64_t length() const { return length_; }

 private:
  int64_t length_;
  std::vector<int64_t> symbols_;
  std::vector<DeviceBuffer> memory_;
  std::vector<Tensor> tensors_;
};

/// A configuration compiled for `target` and launched without an engine.
class BareKernel {
 public:
  BareKernel(const autotune::OpDef& op, const Handle& handle, const GpuCall& call, const Target& target);
  const KernelBinary& binary() const { return binary_; }
  const Grid& grid() const { return grid_; }
  std::span<const uint64_t> slots() const { return call_.block(); }

 private:
  autotune::Config config_;
  KernelBinary binary_;
  Grid grid_;
  autotune::KernelCall call_;
};

/// The target of the portable form (sm_80), with the facts of this GPU.
Target portable_target(const Target& target);

}  // namespace seqtile::bench
