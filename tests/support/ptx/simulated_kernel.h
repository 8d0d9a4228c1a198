// tests/support/ptx/simulated_kernel.h -- one tile kernel's PTX on the machine that executes it, with all checks.
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
  /// Takes changed PTX, which is the next to run.
  void set_text(std::string text) { text_ = std::move(text); }
  /// Runs the text: empty, or the first thing that the machine reports. Only the tensors' own elements are accessible.
  std::string run(Grid grid, const Operands& operands, const std::vector<int64_t>& scalars = {}, uint32_t seed = 0);

 private:
  std::unique_ptr<sim::SimDevice> device_;
  KernelBinary binary_;
  std::string text_;
};

/// Runs `function` interpreted and as PTX for every target, under several schedules; all memory must agree.
void compare_simulated(const ir::Function& function, Grid grid, const std::vector<Param>& params,
                       const std::vector<int64_t>& scalars = {}, double tolerance = 2e-5,
                       const std::vector<int>& alias = {});

/// How often `part` occurs.
size_t count_of(std::string_view text, std::string_view part);

}  // namespace seqtile::testing
