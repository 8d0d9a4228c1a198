// jit/device/device.cpp -- names to devices; see seqtile/device.h.
// SPDX-License-Identifier: Apache-2.0
#include "seqtile/device.h"

#include <sched.h>

#include <algorithm>
#include <string_view>
#include <thread>

#include "jit/base/log.h"
#include "jit/base/nearest_word.h"
#include "jit/device/device_profile.h"
#include "jit/runtime/cpu/cpu_device.h"
#include "jit/runtime/cuda/cuda_device.h"
#include "jit/sim/device/sim_device.h"
#include "seqtile/compiler.h"
#include "seqtile/error.h"

#include <fmt/format.h>

namespace seqtile {
namespace {

constexpr const char* kSimulated[] = {"sm_80", "sm_90a"};

bool is_kind(std::string_view name, std::string_view kind) {
  return name == kind || (name.substr(0, kind.size()) == kind && name.substr(kind.size(), 1) == ":");
}

/// The N of "cuda:N"; "cuda" is "cuda:0".
int gpu_number(const std::string& name) {
  if (name == "cuda") return 0;
  const std::string digits = name.substr(std::string_view("cuda:").size());
  if (digits.empty() || digits.size() > 4 || digits.find_first_not_of("0123456789") != std::string::npos)
    throw Error(ErrorCode::invalid_argument, fmt::format("device \"{}\": give cuda or cuda:N with a number", name));
  return std::stoi(digits);
}

std::vector<std::string> names_of_profiles() {
  std::vector<std::string> names;
  for (const DeviceProfile& profile : device_profiles()) names.push_back(profile.name);
  return names;
}

/// All names but those of single GPUs.
std::vector<std::string> names_of_devices() {
  std::vector<std::string> names = names_of_profiles();
  for (const char* target : kSimulated) names.push_back(std::string("sim:") + target);
  names.insert(names.end(), {"cpu", "cuda"});
  return names;
}

/// A GPU that was found, without a context.
struct FoundGpu {
  explicit FoundGpu(const std::string& name) : number(gpu_number(name)), driver(cuda::Driver::open()) {
    if (!driver)
      throw Error(ErrorCode::unsupported, fmt::format("device \"{}\": no NVIDIA driver found ({}); take device cpu",
                                                      name, cuda::kDriverLibrary));
    facts = cuda::describe_gpu(*driver, number);
    target = assembled(gpu_target(facts), cuda::cubin_arch_of(facts));
  }
  int number;
  std::shared_ptr<const cuda::Driver> driver;
  GpuFacts facts;
  Target target;
};

/// The GPUs that can run kernels. Where there is none, open_device("cuda") says why.
std::vector<DeviceInfo> list_gpus() {
  std::vector<DeviceInfo> gpus;
  const auto try_to = [](auto action) {
    try {
      action();
    } catch (const Error& error) {
      log_line(LogLevel::info, error.what());
    }
  };
  try_to([&] {
    const auto driver = cuda::Driver::open();
    for (int i = 0; driver && i < cuda::num_gpus(*driver); ++i)
      try_to([&] { gpus.push_back(cuda::listed_info(*driver, i)); });
  });
  return gpus;
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
  if (is_kind(name, "cuda")) {
    FoundGpu gpu(name);
    return cuda::make_cuda_device(gpu.driver, gpu.number, std::move(gpu.facts), std::move(gpu.target));
  }
  if (is_kind(name, "sim")) {
    for (const char* target : kSimulated)
      if (name.substr(std::min<size_t>(4, name.size())) == target)
        return sim::make_sim_device(target, num_threads > 0 ? num_threads : cores_available());
  }
  if (const DeviceProfile* profile = find_profile(name)) return make_profile_device(*profile);
  throw Error(ErrorCode::unsupported,
              fmt::format("unknown device \"{}\"; this build knows cpu, cuda:N, sim:{} and the profiles {}{}", name,
                          fmt::join(kSimulated, ", sim:"), fmt::join(names_of_profiles(), ", "),
                          did_you_mean(name, names_of_devices())));
}

Target device_target(const std::string& name) {
  return is_kind(name, "cuda") ? FoundGpu(name).target : open_device(name, 1)->target();
}

std::vector<DeviceInfo> list_devices() {
  std::vector<DeviceInfo> devices = {cpu::describe_host()};
  for (DeviceInfo& gpu : list_gpus()) devices.push_back(std::move(gpu));
  for (const char* target : kSimulated) devices.push_back(sim::make_sim_device(target)->info());
  return devices;
}

}  // namespace seqtile
