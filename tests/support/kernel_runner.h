// tests/support/kernel_runner.h -- runs one configuration of an operation: interpreted tile IR, or compiled code.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <memory>
#include <vector>

#include "autotune/op_def.h"
#include "jit/device.h"

namespace seqtile::testing {

enum class Backend { interpreter, compiled };

/// Keeps its workspaces from run to run, as an engine does.
class KernelRunner {
 public:
  /// `device` runs compiled code and is not used by the interpreter.
  KernelRunner(const autotune::OpDef& op, const autotune::Workload& workload, const autotune::Config& config,
               const Target& target, Backend backend, Device& device);
  void run(const autotune::Problem& problem);
  /// Memory of the kernel's own, large enough for `problem`; zeros at first.
  std::vector<std::vector<uint64_t>>& workspaces(const autotune::Problem& problem);

 private:
  const autotune::OpDef& op_;
  autotune::Workload workload_;
  autotune::Config config_;
  std::unique_ptr<ir::Function> function_;
  Device& device_;
  std::unique_ptr<LoadedKernel> kernel_;  ///< absent: interpreted
  std::vector<std::vector<uint64_t>> memory_;
};

}  // namespace seqtile::testing
