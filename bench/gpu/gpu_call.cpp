// bench/gpu/gpu_call.cpp -- see gpu_call.h.
// SPDX-License-Identifier: Apache-2.0
#include "bench/gpu/gpu_call.h"

#include <algorithm>
#include <bit>
#include <random>

#include "autotune/call/problem.h"
#include "seqtile/compiler.h"

namespace seqtile::bench {
namespace {

void fill_randomly(std::span<std::byte> bytes, DType dtype) {
  std::mt19937 random(7);
  std::normal_distribution<float> normal(0, 0.5f);
  if (dtype == DType::f32) {
    for (float& value : std::span(reinterpret_cast<float*>(bytes.data()), bytes.size() / 4)) value = normal(random);
  } else {  // bf16 is the upper half of an f32
    for (uint16_t& value : std::span(reinterpret_cast<uint16_t*>(bytes.data()), bytes.size() / 2))
      value = static_cast<uint16_t>(std::bit_cast<uint32_t>(normal(random)) >> 16);
  }
}

}  // namespace

GpuCall::GpuCall(Device& device, const autotune::OpDef& op, const Handle& handle, int64_t length) : length_(length) {
  const autotune::Workload& workload = handle.workload();
  symbols_ = autotune::call_symbols(op, workload, handle.schema(), length);
  autotune::Problem problem{&workload, &handle.schema(), symbols_, {}};
  for (const autotune::ArgSpec& arg : handle.schema().args)
    problem.tensors.push_back(autotune::describe_arg(arg, handle.schema(), symbols_));
  for (size_t i = 0; i < problem.tensors.size(); ++i) place(device, op, problem, i);
  tensors_ = problem.tensors;
}

void GpuCall::place(Device& device, const autotune::OpDef& op, autotune::Problem& problem, size_t i) {
  Tensor& tensor = problem.tensors[i];
  const auto bytes = static_cast<size_t>(tensor.num_elements() * dtype_bytes(tensor.dtype));
  std::vector<std::byte> host(std::min<size_t>(bytes, size_t{8} << 20));
  if (is_integer(tensor.dtype)) {
    host.resize(bytes);
    tensor.data = host.data();
    if (op.fill) op.fill(problem, i, 1);
  } else {
    fill_randomly(host, tensor.dtype);
  }
  memory_.emplace_back(device.memory(), bytes);
  auto* to = static_cast<std::byte*>(memory_.back().data());
  for (size_t at = 0; at < bytes; at += host.size())
    device.memory().copy(to + at, host.data(), std::min(host.size(), bytes - at));
  device.streams().synchronize({});
  tensor.data = to;
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
