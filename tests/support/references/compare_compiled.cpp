// tests/support/references/compare_compiled.cpp -- see compare_compiled.h.
// SPDX-License-Identifier: Apache-2.0
#include "tests/support/references/compare_compiled.h"

#include <catch2/catch.hpp>
#include <cstring>
#include <map>
#include <memory>

#include "jit/codegen/cpu/lowering.h"
#include "seqtile/device.h"
#include "tests/support/kernels/compiled.h"
#include "tests/support/kernels/guarded_bytes.h"

namespace seqtile::testing {
namespace {

/// Moves all tensors to the end of a page, before a page that must not be touched. Tensors keep their alignment.
std::vector<std::unique_ptr<GuardedBytes>> guard(Operands& operands) {
  constexpr size_t kAlignment = 64;
  std::vector<std::unique_ptr<GuardedBytes>> guards;
  std::map<void*, void*> moved;
  for (size_t i = 0; i < operands.memory.size(); ++i) {
    Tensor& tensor = operands.tensors[i];
    const auto found = moved.find(tensor.data);
    if (found == moved.end()) {
      const auto& memory = operands.memory[i];
      const auto* data = static_cast<const std::byte*>(tensor.data);
      const size_t bytes = static_cast<size_t>(memory.data() + memory.size() - data) / kAlignment * kAlignment;
      guards.push_back(std::make_unique<GuardedBytes>(bytes, std::byte{0}));
      std::memcpy(guards.back()->data(), data, bytes);
      moved[tensor.data] = guards.back()->data();
    }
    tensor.data = moved.at(tensor.data);
  }
  return guards;
}

}  // namespace

CompiledEverywhere::CompiledEverywhere(const ir::Function& function) : function_(function) {
  for (const std::string& name : cpu_target_names())
    for (const bool is_cached : {true, false}) {
      Target target = cpu_target(name);
      if (!is_executable(target)) continue;
      if (!is_cached) target.l3_bytes = 0;  // no output fits the caches
      kernels_.emplace_back(name + (is_cached ? "" : ", streaming"), device_->load(compiled(function, target)));
    }
}

CompiledEverywhere::~CompiledEverywhere() = default;

void CompiledEverywhere::compare(Grid grid, const std::vector<Param>& params, const std::vector<int64_t>& scalars,
                                 double tolerance, const std::vector<int>& alias) const {
  const Operands want(params, alias);
  interpret_on(function_, grid, want, scalars);
  for (const auto& [name, kernel] : kernels_) {
    INFO(function_.name() << " for " << name);
    Operands got(params, alias);
    const auto guards = guard(got);
    device_->launch(*kernel, grid, got.slots(scalars));
    REQUIRE(first_difference(function_, params, want, got, tolerance) == "");
  }
}

void compare_compiled(const ir::Function& function, Grid grid, const std::vector<Param>& params,
                      const std::vector<int64_t>& scalars, double tolerance, const std::vector<int>& alias) {
  CompiledEverywhere(function).compare(grid, params, scalars, tolerance, alias);
}

}  // namespace seqtile::testing
