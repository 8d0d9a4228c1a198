// tests/support/ptx/simulated_kernel.cpp -- see simulated_kernel.h.
// SPDX-License-Identifier: Apache-2.0
#include "tests/support/ptx/simulated_kernel.h"

#include <catch2/catch.hpp>

#include <span>

#include "seqtile/error.h"
#include "tests/support/kernels/compiled.h"

namespace seqtile::testing {

SimulatedKernel::SimulatedKernel(const ir::Function& function, std::string_view target)
    : device_(sim::make_sim_device(target)), binary_(compiled(function, device_->target())) {
  text_.assign(reinterpret_cast<const char*>(binary_.code.data()), binary_.code.size());
}

std::string SimulatedKernel::run(Grid grid, const Operands& operands, const std::vector<int64_t>& scalars,
                                 uint32_t seed) {
  KernelBinary binary = binary_;
  const auto bytes = std::as_bytes(std::span(text_));
  binary.code.assign(bytes.begin(), bytes.end());
  device_->forget_memory();
  device_->options().seed = seed;
  for (size_t i = 0; i < operands.tensors.size(); ++i) {
    const Tensor& tensor = operands.tensors[i];
    bool is_new = tensor.num_elements() > 0;
    for (size_t j = 0; j < i; ++j) is_new &= operands.tensors[j].data != tensor.data;
    const auto size = static_cast<size_t>(tensor.num_elements() * dtype_bytes(tensor.dtype));
    if (is_new) device_->register_memory("tensor " + std::to_string(i), {static_cast<std::byte*>(tensor.data), size});
  }
  try {
    device_->launch(*device_->load(std::move(binary)), grid, operands.slots(scalars));
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

void compare_simulated(const ir::Function& function, Grid grid, const std::vector<Param>& params,
                       const std::vector<int64_t>& scalars, double tolerance, const std::vector<int>& alias) {
  const Operands want(params, alias);
  interpret_on(function, grid, want, scalars);
  for (const char* target : {"sm_80", "sm_90a"}) {
    SimulatedKernel kernel(function, target);
    for (const uint32_t seed : {0u, 1u, 2u, 3u}) {
      INFO(function.name() << " for " << target << " seed " << seed);
      const Operands got(params, alias);
      REQUIRE(kernel.run(grid, got, scalars, seed) == "");
      REQUIRE(first_difference(function, params, want, got, tolerance) == "");
    }
  }
}

size_t count_of(std::string_view text, std::string_view part) {
  size_t found = 0;
  for (size_t at = text.find(part); at != text.npos; at = text.find(part, at + 1)) ++found;
  return found;
}

}  // namespace seqtile::testing
