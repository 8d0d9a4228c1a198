// jit/device.cpp -- names to devices; see device.h.
// SPDX-License-Identifier: Apache-2.0
#include "jit/device.h"

#include <sched.h>

#include <algorithm>
#include <string_view>
#include <thread>

#include "jit/error.h"
#include "jit/runtime/cpu/cpu_device.h"
#include "jit/runtime/cuda/cuda_driver.h"
#include "jit/sim/sim_device.h"

#include <fmt/format.h>

namespace seqtile {
namespace {

constexpr const char* kSimulated[] = {"sm_80", "sm_90a"};

bool is_kind(std::string_view name, std::string_view kind) {
  return name == kind || (name.substr(0, kind.size()) == kind && name.substr(kind.size(), 1) == ":");
}

}  // namespace

int cores_available() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) > 0) return CPU_COUNT(&set);
  return static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
}

std::unique_ptr<Device> open_device(const std::string& name, int num_threads) {
  if (name == "cpu") return make_cpu_device(num_threads > 0 ? num_threads : cores_available());
  if (is_kind(name, "cuda"))
    throw Error(ErrorCode::unsupported,
                fmt::format("device \"{}\": {}; use --device cpu", name,
                            cuda::is_driver_present() ? "CUDA devices are not part of this build"
                                                      : "no NVIDIA driver found (libcuda.so.1)"));
  if (is_kind(name, "sim")) {
    for (const char* target : kSimulated)
      if (name.substr(std::min<size_t>(4, name.size())) == target)
        return sim::make_sim_device(target, num_threads > 0 ? num_threads : cores_available());
  }
  throw Error(ErrorCode::unsupported, fmt::format("unknown device \"{}\"; this build knows cpu, sim:{}", name,
                                                  fmt::join(kSimulated, ", sim:")));
}

std::vector<DeviceInfo> list_devices() {
  std::vector<DeviceInfo> devices = {cpu::describe_host()};
  for (const char* target : kSimulated) devices.push_back(sim::make_sim_device(target)->info());
  return devices;
}

}  // namespace seqtile
