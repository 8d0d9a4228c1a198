// jit/device.cpp -- names to devices; see device.h.
// SPDX-License-Identifier: Apache-2.0
#include "jit/device.h"

#include <algorithm>
#include <charconv>
#include <string_view>
#include <thread>

#include "jit/error.h"
#include "jit/runtime/cpu/cpu_device.h"
#include "jit/runtime/cuda/cuda_driver.h"

#include <fmt/format.h>

namespace seqtile {
namespace {

bool is_kind(std::string_view name, std::string_view kind) {
  return name == kind || (name.substr(0, kind.size()) == kind && name.substr(kind.size(), 1) == ":");
}

/// The threads that "cpu:2" asks for, or `fallback` for plain "cpu"; all of the machine's when that is 0.
int parse_threads(std::string_view name, int fallback) {
  const int all = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  if (name == "cpu") return fallback != 0 ? fallback : all;
  const std::string_view digits = name.substr(4);
  int threads = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), threads);
  if (error != std::errc() || end != digits.data() + digits.size() || threads < 1)
    throw Error(ErrorCode::invalid_argument,
                fmt::format("device \"{}\": cpu:N takes a number of threads, for example cpu:2", name));
  return threads;
}

}  // namespace

std::unique_ptr<Device> open_device(const std::string& name, int num_threads) {
  if (is_kind(name, "cpu")) return make_cpu_device(parse_threads(name, num_threads));
  if (is_kind(name, "cuda"))
    throw Error(ErrorCode::unsupported,
                fmt::format("device \"{}\": {}; use --device cpu", name,
                            cuda::is_driver_present() ? "CUDA devices are not part of this build"
                                                      : "no NVIDIA driver found (libcuda.so.1)"));
  throw Error(ErrorCode::unsupported, fmt::format("unknown device \"{}\"; this build knows cpu and cpu:N", name));
}

std::vector<DeviceInfo> list_devices() { return {cpu::describe_host()}; }

}  // namespace seqtile
