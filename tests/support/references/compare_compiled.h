// tests/support/references/compare_compiled.h -- compares a compiled kernel with the interpreter, on guarded memory.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "seqtile/device.h"
#include "tests/support/kernels/operands.h"

namespace seqtile::testing {

/// A function, compiled for all CPU targets that this machine executes, and again for each as if no output fitted the
/// caches. Requires: the function outlives the object.
class CompiledEverywhere {
 public:
  explicit CompiledEverywhere(const ir::Function& function);
  ~CompiledEverywhere();
  /// Runs all binaries and the interpreter; all memory must agree within `tolerance`. The page behind each tensor's
  /// memory must not be touched.
  void compare(Grid grid, const std::vector<Param>& params, const std::vector<int64_t>& scalars = {},
               double tolerance = 2e-5, const std::vector<int>& alias = {}) const;

 private:
  const ir::Function& function_;
  std::unique_ptr<Device> device_ = make_cpu_device(1);
  std::vector<std::pair<std::string, std::unique_ptr<LoadedKernel>>> kernels_;
};

/// As CompiledEverywhere, for one call of a function.
void compare_compiled(const ir::Function& function, Grid grid, const std::vector<Param>& params,
                      const std::vector<int64_t>& scalars = {}, double tolerance = 2e-5,
                      const std::vector<int>& alias = {});

}  // namespace seqtile::testing
