// jit/runtime/cuda/gpu_condition.cpp -- see gpu_condition.h.
// SPDX-License-Identifier: Apache-2.0
#include "jit/runtime/cuda/gpu_condition.h"

#include <dlfcn.h>

#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace seqtile::cuda {
namespace {

constexpr int kSuccess = 0, kMultiprocessorClock = 1, kMemoryClock = 2, kGpuSensor = 0;

/// Reasons for clocks below the highest, as nvidia-smi names them. An idle GPU is not one.
constexpr std::pair<uint64_t, const char*> kReasons[] = {
    {0x2, "applications_clocks_setting"}, {0x4, "sw_power_cap"},         {0x8, "hw_slowdown"},
    {0x10, "sync_boost"},                 {0x20, "sw_thermal_slowdown"}, {0x40, "hw_thermal_slowdown"},
    {0x80, "hw_power_brake_slowdown"},    {0x100, "display_clock_setting"}};

/// A function of the library; calls of one that it does not have fail.
template <class... Parameters>
class Function {
 public:
  Function(void* library, const char* symbol)
      : call_(reinterpret_cast<int (*)(Parameters...)>(dlsym(library, symbol))) {}
  bool operator()(Parameters... parameters) const { return call_ && call_(parameters...) == kSuccess; }

 private:
  int (*call_)(Parameters...);
};

using Gpu = void*;

std::string reasons_text(uint64_t reasons) {
  std::vector<std::string_view> names;
  for (const auto& [bit, name] : kReasons)
    if (reasons & bit) names.emplace_back(name);
  return names.empty() ? "not slowed" : fmt::format("slowed by {}", fmt::join(names, " "));
}

}  // namespace

std::string gpu_condition(const std::string& pci_bus, const char* library) {
  void* nvml = dlopen(library, RTLD_NOW | RTLD_LOCAL);  // never closed, as the driver
  Gpu gpu = nullptr;
  if (!nvml || !Function<>(nvml, "nvmlInit_v2")()) return "";
  if (!Function<const char*, Gpu*>(nvml, "nvmlDeviceGetHandleByPciBusId_v2")(pci_bus.c_str(), &gpu)) return "";
  const Function<Gpu, int, unsigned*> clock(nvml, "nvmlDeviceGetClockInfo"),
      highest_clock(nvml, "nvmlDeviceGetMaxClockInfo"), temperature(nvml, "nvmlDeviceGetTemperature");
  const Function<Gpu, unsigned*> power(nvml, "nvmlDeviceGetPowerUsage");
  const Function<Gpu, unsigned long long*> reasons(nvml, "nvmlDeviceGetCurrentClocksThrottleReasons");
  std::vector<std::string> facts;
  unsigned value = 0, highest = 0;
  unsigned long long bits = 0;
  if (clock(gpu, kMultiprocessorClock, &value) && highest_clock(gpu, kMultiprocessorClock, &highest))
    facts.push_back(fmt::format("{} of {} MHz", value, highest));
  if (clock(gpu, kMemoryClock, &value)) facts.push_back(fmt::format("memory {} MHz", value));
  if (temperature(gpu, kGpuSensor, &value)) facts.push_back(fmt::format("{} C", value));
  if (power(gpu, &value)) facts.push_back(fmt::format("{} W", value / 1000));
  if (reasons(gpu, &bits)) facts.push_back(reasons_text(bits));
  return fmt::format("{}", fmt::join(facts, ", "));
}

}  // namespace seqtile::cuda
