// bench/gpu/gpu_call.cpp -- see gpu_call.h.
// SPDX-License-Identifier: Apache-2.0
#include "bench/gpu/gpu_call.h"

#include "autotune/call/call_values.h"
#include "autotune/call/problem.h"
#include "autotune/call_sizes.h"
#include "seqtile/compiler.h"

namespace seqtile::bench {

GpuCall::GpuCall(Device& device, const autotune::OpDef& op, const Handle& handle, int64_t length) : length_(length) {
  symbols_ = autotune::call_symbols(op, handle.workload(), handle.schema(), length);
  tensors_ = autotune::describe_args(handle.schema(), symbols_);
  autotune::Problem problem{&handle.workload(), &handle.schema(), symbols_, tensors_};
  for (size_t i = 0; i < tensors_.size(); ++i) {
    std::vector<std::byte> host(autotune::tensor_bytes(tensors_[i]));
    problem.tensors[i].data = host.data();
    autotune::fill_input(op, problem, i, 1);
    memory_.emplace_back(device.memory(), host.size());
    tensors_[i].data = memory_.back().data();
    device.memory().copy(tensors_[i].data, host.data(), host.size());
    device.streams().synchronize({});
  }
}

BareKernel::BareKernel(const autotune::OpDef& op, const Handle& handle, const GpuCall& call, const Target& target)
    : config_(op.default_config(handle.workload(), call.length(), target)),
      binary_(compile(*autotune::build_kernel(op, handle.workload(), config_, target), target)),
      grid_(autotune::grid_of(op.grid(handle.workload(), config_), call.symbols())) {
  const autotune::CallLayout layout(handle.schema(), true);
  layout.bind(call.tensors(), call.length(), call.scalars(handle), call_);
  layout.finish(call.scalars(handle), nullptr, call_);
}

Target portable_target(const Target& target) {
  Target portable = gpu_target("sm_80");
  portable.gpu = target.gpu;
  return portable;
}

}  // namespace seqtile::bench
