// tests/support/references/compare_compiled.h -- a compiled kernel against the interpreter, on guarded memory.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "jit/device/device.h"
#include "tests/support/kernels/operands.h"

namespace seqtile::testing {

/// A function, compiled for every CPU target that this machine executes, each once as if no output fitted the caches.
/// The function outlives it.
class CompiledEverywhere {
 public:
  explicit CompiledEverywhere(const ir::Function& function);
  ~CompiledEverywhere();
  /// Runs it so and interpreted; all memory must agree within `tolerance`. Behind each tensor's memory is a page that
  /// must not be touched.
  void compare(Grid grid, const std::vector<Param>& params, const std::vector<int64_t>& scalars = {},
               double tolerance = 2e-5, const std::vector<int>& alias = {}) const;

 private:
  const ir::Function& function_;
  std::unique_ptr<Device> device_ = make_cpu_device(1);
  std::vector<std::pair<std::string, std::unique_ptr<LoadedKernel>>> kernels_;
};

/// The same for one call of a function.
void compare_compiled(const ir::Function& function, Grid grid, const std::vector<Param>& params,
                      const std::vector<int64_t>& scalars = {}, double tolerance = 2e-5,
                      const std::vector<int>& alias = {});

}  // namespace seqtile::testing
