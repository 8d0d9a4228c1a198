// jit/device/gpu_facts.cpp -- see gpu_facts.h.
// SPDX-License-Identifier: Apache-2.0
#include "jit/device/gpu_facts.h"

#include "seqtile/error.h"

#include <fmt/format.h>

namespace seqtile {
namespace {

/// Dense operations that one multiprocessor does in one clock.
struct Rates {
  int compute_capability;  ///< from this one on
  double f16, tf32, fp8, f32;
};

/// Programming guides and white papers of each generation.
constexpr Rates kRates[] = {
    {80, 2048, 1024, 0, 128},    {86, 1024, 512, 0, 256},       {89, 1024, 512, 2048, 256},
    {90, 4096, 2048, 8192, 256}, {100, 8192, 4096, 16384, 256}, {120, 1024, 512, 2048, 256},
};

}  // namespace

void estimate_peaks(GpuFacts& facts) {
  const Rates* rates = &kRates[0];
  for (const Rates& row : kRates)
    if (facts.compute_capability >= row.compute_capability) rates = &row;
  const double clocks = 1e-6 * facts.num_multiprocessors * facts.clock_mhz;  // 1e12 multiprocessor clocks a second
  const auto fill = [&](double& peak, double rate) {
    if (peak == 0) peak = rate * clocks;
  };
  fill(facts.tensor_f16_tflops, rates->f16);
  fill(facts.tensor_tf32_tflops, rates->tf32);
  fill(facts.tensor_fp8_tflops, rates->fp8);
  fill(facts.f32_tflops, rates->f32);
}

std::vector<std::pair<std::string, std::string>> key_facts(const GpuFacts& facts) {
  constexpr int64_t kMemoryClass = int64_t{8} << 30;
  const int64_t memory = (facts.memory_bytes + kMemoryClass - 1) / kMemoryClass * 8;
  return {{"clock_class_mhz", std::to_string((facts.clock_mhz + 50) / 100 * 100)},
          {"memory_class_gib", std::to_string(memory)},
          {"mig", facts.mig},
          {"multiprocessors", std::to_string(facts.num_multiprocessors)},
          {"sm", std::to_string(facts.compute_capability)},
          {"target", gpu_target_name(facts)}};
}

std::string gpu_target_name(const GpuFacts& facts) {
  if (facts.compute_capability < 80)
    throw Error(ErrorCode::unsupported,
                fmt::format("{} has compute capability {}.{}; kernels need at least 8.0; take a newer GPU, the CPU, or "
                            "a simulated GPU (sim:sm_80)",
                            facts.name, facts.compute_capability / 10, facts.compute_capability % 10));
  return facts.compute_capability == 90 ? "sm_90a" : "sm_80";
}

}  // namespace seqtile
