// tests/support/kernels/kernel_runner.cpp -- see kernel_runner.h.
// SPDX-License-Identifier: Apache-2.0
#include "tests/support/kernels/kernel_runner.h"

#include "autotune/engine/launch.h"
#include "jit/device/gpu_launch.h"
#include "tests/support/kernels/compiled.h"
#include "tests/support/references/interpreter.h"

namespace seqtile::testing {

KernelRunner::KernelRunner(const autotune::OpDef& op, const autotune::Workload& workload,
                           const autotune::Config& config, const Target& target, Backend backend, Device& device)
    : op_(op),
      workload_(workload),
      config_(config),
      function_(autotune::build_kernel(op, workload, config, target)),
      device_(device) {
  if (backend == Backend::compiled) kernel_ = device.load(compiled(*function_, target));
}

std::vector<DeviceBuffer>& KernelRunner::workspaces(const autotune::Problem& problem) {
  const auto specs = op_.workspaces ? op_.workspaces(workload_, config_) : std::vector<autotune::Workspace>{};
  memory_.resize(specs.size());
  for (size_t i = 0; i < specs.size(); ++i) {
    const auto bytes = static_cast<size_t>(specs[i].elements.value(problem.symbols) * dtype_bytes(specs[i].dtype));
    if (memory_[i].bytes() >= bytes) continue;
    memory_[i] = DeviceBuffer(device_.memory(), bytes);
    device_.memory().fill(memory_[i].data(), 0, bytes);
  }
  return memory_;
}

void KernelRunner::run(const autotune::Problem& problem) {
  const auto specs = op_.workspaces ? op_.workspaces(workload_, config_) : std::vector<autotune::Workspace>{};
  auto& memory = workspaces(problem);
  const std::vector<int64_t> scalars(problem.schema->scalars.size());
  const Grid grid = autotune::grid_of(op_.grid(workload_, config_), problem.symbols);
  if (kernel_) {
    autotune::KernelCall call;
    const autotune::CallLayout layout(*problem.schema, device_.target().is_gpu());
    layout.bind(problem.tensors, problem.symbols[0], scalars, call);
    for (size_t i = 0; i < specs.size(); ++i)
      autotune::append_workspace(call, memory[i].data(), specs[i].elements.value(problem.symbols));
    layout.finish(scalars, nullptr, call);
    launch_alone(device_, *kernel_, grid, call.block());
    device_.streams().synchronize({});
    return;
  }
  std::vector<ParamValue> params(problem.tensors.begin(), problem.tensors.end());
  for (size_t i = 0; i < specs.size(); ++i)
    params.push_back(make_tensor(memory[i].data(), specs[i].dtype, {specs[i].elements.value(problem.symbols)}));
  params.insert(params.end(), scalars.begin(), scalars.end());
  interpret(*function_, grid, params);
}

}  // namespace seqtile::testing
