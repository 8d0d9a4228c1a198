// jit/runtime/cuda/cuda_device.cpp -- see cuda_device.h.
// SPDX-License-Identifier: Apache-2.0
#include "jit/runtime/cuda/cuda_device.h"

#include <algorithm>
#include <utility>

#include "jit/device/gpu_facts.h"
#include "jit/runtime/cuda/cuda_context.h"
#include "jit/runtime/cuda/cuda_kernel.h"
#include "jit/runtime/cuda/cuda_memory.h"
#include "jit/runtime/cuda/cuda_streams.h"
#include "jit/runtime/cuda/gpu_condition.h"

#include <fmt/format.h>

namespace seqtile::cuda {
namespace {

void check(const Driver& driver, CUresult result, const char* what) {
  if (result != CUDA_SUCCESS)
    throw Error(ErrorCode::driver, fmt::format("cannot {}: {}", what, driver.describe(result)));
}

/// "1g.18gb" of "NVIDIA H200 MIG 1g.18gb", or "none".
std::string mig_profile(const std::string& name) {
  const size_t at = name.find(" MIG ");
  return at == std::string::npos ? "none" : name.substr(at + 5);
}

class CudaDevice final : public Device {
 public:
  CudaDevice(std::shared_ptr<const Driver> driver, int ordinal, GpuFacts facts, Target target)
      : facts_(std::move(facts)),
        target_(std::move(target)),
        info_(info_of(facts_)),
        context_(std::move(driver), ordinal),
        memory_(context_),
        streams_(context_) {}

  const DeviceInfo& info() const override { return info_; }
  const Target& target() const override { return target_; }
  DeviceMemory& memory() override { return memory_; }
  DeviceStreams& streams() override { return streams_; }
  std::string condition() override {
    char bus[32] = "";
    const CUresult result = context_.driver().cuDeviceGetPCIBusId(bus, sizeof bus, context_.device());
    return result == CUDA_SUCCESS ? gpu_condition(bus) : "";
  }
  std::unique_ptr<LoadedKernel> load(KernelBinary binary) override {
    return std::make_unique<CudaKernel>(context_, facts_, std::move(binary));
  }
  void launch(const LoadedKernel& kernel, const Grid& grid, std::span<const uint64_t> slots, Stream stream,
              GridRange range) override {
    if (range.first != 0 || range.count >= 0)
      throw Error(ErrorCode::unsupported, context_.name() + ": a part of a grid cannot be launched");
    static_cast<const CudaKernel&>(kernel).launch(grid, slots, stream);
  }

 private:
  GpuFacts facts_;
  Target target_;
  DeviceInfo info_;
  Context context_;
  CudaMemory memory_;
  CudaStreams streams_;
};

}  // namespace

int num_gpus(const Driver& driver) {
  int count = 0;
  check(driver, driver.cuDeviceGetCount(&count), "count the GPUs");
  return count;
}

GpuFacts describe_gpu(const Driver& driver, int ordinal) {
  const int count = num_gpus(driver);
  if (ordinal < 0 || ordinal >= count)
    throw Error(
        ErrorCode::driver,
        fmt::format(
            "there is no GPU cuda:{}; the driver (CUDA {}) shows {} of them; {}look at CUDA_VISIBLE_DEVICES and "
            "the devices of the container",
            ordinal, version_text(driver.version), count,
            count > 0 ? fmt::format("take cuda:0 to cuda:{}, or ", count - 1) : ""));
  CUdevice device = 0;
  check(driver, driver.cuDeviceGet(&device, ordinal), "find the GPU");
  const auto attribute = [&](int which) {
    int value = 0;
    check(driver, driver.cuDeviceGetAttribute(&value, which, device), "ask for a fact of the GPU");
    return value;
  };
  char name[256] = "";
  size_t memory = 0;
  check(driver, driver.cuDeviceGetName(name, sizeof name, device), "ask for the GPU's name");
  check(driver, driver.cuDeviceTotalMem(&memory, device), "ask for the GPU's memory");
  GpuFacts facts;
  facts.name = name;
  facts.mig = mig_profile(facts.name);
  facts.compute_capability = 10 * attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) +
                             attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
  facts.num_multiprocessors = attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
  facts.clock_mhz = attribute(CU_DEVICE_ATTRIBUTE_CLOCK_RATE) / 1000;
  facts.memory_bytes = static_cast<int64_t>(memory);
  // Two transfers a clock, kHz and bits to GB/s.
  facts.memory_gb_per_s = 2e-6 / 8 * attribute(CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE) *
                          attribute(CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH);
  facts.l2_bytes = attribute(CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE);
  facts.shared_bytes_per_block = attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
  facts.shared_bytes_per_multiprocessor = attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR);
  facts.registers_per_multiprocessor = attribute(CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR);
  facts.threads_per_multiprocessor = attribute(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR);
  estimate_peaks(facts);
  return facts;
}

DeviceInfo info_of(const GpuFacts& facts) { return {"cuda", facts.name, key_facts(facts)}; }

DeviceInfo listed_info(const Driver& driver, int ordinal) {
  DeviceInfo info = info_of(describe_gpu(driver, ordinal));
  info.facts.emplace_back("cuda_driver", version_text(driver.version));
  std::sort(info.facts.begin(), info.facts.end());
  return info;
}

std::string cubin_arch_of(const GpuFacts& facts) {
  const std::string name = gpu_target_name(facts);
  return name == "sm_80" ? fmt::format("sm_{}", facts.compute_capability) : name;
}

std::unique_ptr<Device> make_cuda_device(std::shared_ptr<const Driver> driver, int ordinal, GpuFacts facts,
                                         Target target) {
  return std::make_unique<CudaDevice>(std::move(driver), ordinal, std::move(facts), std::move(target));
}

}  // namespace seqtile::cuda
