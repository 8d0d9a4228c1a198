// tests/support/kernels/kernel_runner.h -- runs one configuration of an operation, interpreted or compiled.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <memory>
#include <vector>

#include "seqtile/device.h"
#include "seqtile/ir.h"
#include "seqtile/op.h"

namespace seqtile::testing {

enum class Backend { interpreter, compiled };

/// A kernel with workspaces that it keeps from run to run, as an engine does.
class KernelRunner {
 public:
  /// `device` runs compiled code; the interpreter does not use it.
  KernelRunner(const autotune::OpDef& op, const autotune::Workload& workload, const autotune::Config& config,
               const Target& target, Backend backend, Device& device);
  /// Returns when the device is done. The problem's tensors must lie where the device's kernels reach them.
  void run(const autotune::Problem& problem);
  /// The kernel's own memory on the device, large enough for `problem`; zero at first.
  std::vector<DeviceBuffer>& workspaces(const autotune::Problem& problem);

 private:
  const autotune::OpDef& op_;
  autotune::Workload workload_;
  autotune::Config config_;
  std::unique_ptr<ir::Function> function_;
  Device& device_;
  std::unique_ptr<LoadedKernel> kernel_;  ///< null: interpreted
  std::vector<DeviceBuffer> memory_;
};

}  // namespace seqtile::testing
