// tests/support/kernels/kernel_runner.h -- runs one configuration of an operation: interpreted tile IR, or compiled
// code.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <memory>
#include <vector>

#include "autotune/op_def.h"
#include "jit/device/device.h"
#include "jit/ir/function.h"

namespace seqtile::testing {

enum class Backend { interpreter, compiled };

/// Keeps its workspaces from run to run, as an engine does.
class KernelRunner {
 public:
  /// `device` runs compiled code and is not used by the interpreter.
  KernelRunner(const autotune::OpDef& op, const autotune::Workload& workload, const autotune::Config& config,
               const Target& target, Backend backend, Device& device);
  /// Returns when the device is done; the problem's tensors are where its kernels reach them.
  void run(const autotune::Problem& problem);
  /// Memory of the kernel's own on the device, large enough for `problem`; zeros at first.
  std::vector<DeviceBuffer>& workspaces(const autotune::Problem& problem);

 private:
  const autotune::OpDef& op_;
  autotune::Workload workload_;
  autotune::Config config_;
  std::unique_ptr<ir::Function> function_;
  Device& device_;
  std::unique_ptr<LoadedKernel> kernel_;  ///< absent: interpreted
  std::vector<DeviceBuffer> memory_;
};

}  // namespace seqtile::testing
