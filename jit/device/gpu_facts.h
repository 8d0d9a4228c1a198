// jit/device/gpu_facts.h -- properties of a GPU in numbers: for the key of its records and for models of its speed.
// SPDX-License-Identifier: Apache-2.0
//
// The driver's answers and the profiles of GPUs that are not here (device_profile.h) both end in GpuFacts. key_facts()
// alone decides which of these facts enter a key, so that a decision made with a profile is found on the GPU itself.
#pragma once
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace seqtile {

struct GpuFacts {
  std::string name;            ///< as the driver gives it: "NVIDIA H200"
  int compute_capability = 0;  ///< 10 * major + minor
  int num_multiprocessors = 0;
  int clock_mhz = 0;         ///< the highest clock
  int64_t memory_bytes = 0;  ///< the memory of the whole GPU, or of its MIG slice
  double memory_gb_per_s = 0;
  int64_t l2_bytes = 0;
  int64_t shared_bytes_per_block = 0;  ///< the opt-in limit
  int64_t shared_bytes_per_multiprocessor = 0;
  int64_t registers_per_multiprocessor = 65536;
  int threads_per_multiprocessor = 2048;
  double tensor_f16_tflops = 0;  ///< f16 and bf16, dense; mma.sync reaches a part of it on Hopper
  double tensor_tf32_tflops = 0, tensor_fp8_tflops = 0;
  double f32_tflops = 0;
  std::string mig = "none";  ///< MIG profile, "1g.18gb"
};

/// Fills in peak rates that are 0 from multiprocessors, clock and compute capability: drivers do not report them.
void estimate_peaks(GpuFacts& facts);

/// The part of a device's identity that decides about speed, sorted by name: clock class (100 MHz), memory class (8
/// GiB, rounded up: drivers keep some for themselves), MIG profile, multiprocessors, compute capability, code target.
/// Names and exact sizes are left out: they differ between drivers for one and the same GPU.
std::vector<std::pair<std::string, std::string>> key_facts(const GpuFacts& facts);

/// The code that a GPU runs: "sm_90a" at compute capability 9.0, else "sm_80", which later GPUs take as PTX.
/// Errors: unsupported below 8.0.
std::string gpu_target_name(const GpuFacts& facts);

}  // namespace seqtile
