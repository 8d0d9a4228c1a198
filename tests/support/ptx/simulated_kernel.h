// tests/support/ptx/simulated_kernel.h -- runs a tile kernel's PTX on the PTX machine, with all checks.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <memory>
#include <string>
#include <string_view>

#include "jit/sim/device/sim_device.h"
#include "tests/support/kernels/operands.h"

namespace seqtile::testing {

class SimulatedKernel {
 public:
  explicit SimulatedKernel(const ir::Function& function, std::string_view target = "sm_80");
  const std::string& text() const { return text_; }
  /// Replaces the PTX of the next run.
  void set_text(std::string text) { text_ = std::move(text); }
  /// Runs the PTX. Returns the first report of the machine, or an empty text. Only the elements of tensors are
  /// accessible.
  std::string run(Grid grid, const Operands& operands, const std::vector<int64_t>& scalars = {}, uint32_t seed = 0);

 private:
  std::unique_ptr<sim::SimDevice> device_;
  KernelBinary binary_;
  std::string text_;
};

/// Runs `function` interpreted, and as PTX for all targets under several schedules; all memory must agree.
void compare_simulated(const ir::Function& function, Grid grid, const std::vector<Param>& params,
                       const std::vector<int64_t>& scalars = {}, double tolerance = 2e-5,
                       const std::vector<int>& alias = {});

/// Counts the occurrences of `part`.
size_t count_of(std::string_view text, std::string_view part);

}  // namespace seqtile::testing
