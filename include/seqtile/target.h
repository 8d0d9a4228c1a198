// include/seqtile/target.h -- what code is generated for: an instruction set, a GPU in numbers, and what a caller may
// ask of the compiler.
// SPDX-License-Identifier: Apache-2.0
//
// The driver's answers and the profiles of GPUs that are not here (DeviceProfile) both end in GpuFacts. Few of
// these facts enter a key, so that a decision made with a profile is found on the GPU itself.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace seqtile {

/// Properties of a GPU in numbers, for the key of its records and for models of its speed.
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

// A Target is what code is generated for: an instruction set with its vector width and caches.
//
// CPU targets, best first: amx, avx512bf16, avx512, avx2, generic (x86-64), neon (AArch64). The running machine's best
// is found by CPUID without starting LLVM; SEQTILE_CPU_TARGET forces another by name. GPU targets: sm_80 (portable code
// for Ampere and everything later), sm_90a (Hopper's own instructions).

struct Target {
  std::string name;       ///< "cpu:avx512bf16"; also KernelBinary::target
  std::string triple;     ///< LLVM target triple
  std::string cpu;        ///< LLVM processor name
  std::string features;   ///< LLVM feature string
  int vector_bytes = 16;  ///< width of one vector register
  int num_vector_registers = 16;
  bool has_bf16_dot = false;          ///< vdpbf16ps: pairs of bf16 products accumulated in f32
  bool has_matrix_registers = false;  ///< AMX: tdpbf16ps, 16 x 16 sums of 32 products of bf16 at a time
  bool has_fma = false;
  int64_t l1_bytes = 32 << 10, l2_bytes = 1 << 20,
          l3_bytes = 32 << 20;  ///< data caches of this machine, one core's view

  int64_t shared_bytes = 0;   ///< GPUs: shared memory that one block of threads may have; 0 for CPUs
  std::string cubin_arch;     ///< GPUs: the PTX is assembled for it, "sm_89"; empty: it stays PTX. See assembled()
  std::string ptxas;          ///< path of the assembler, where there is a cubin_arch
  bool loads_cubins = false;  ///< GPUs: a device of its own compute capability, not the PTX machine or text alone
  GpuFacts gpu;               ///< GPUs: for predictions and limits of configurations, never for what code computes

  bool has_wgmma = false;  ///< GPUs: Hopper's asynchronous copies and products

  bool is_gpu() const { return shared_bytes > 0; }
  int lanes_f32() const { return vector_bytes / 4; }
};

/// The best target that the running machine executes, or the one that SEQTILE_CPU_TARGET names.
/// Errors: unsupported, with the list of names, for an unknown name.
const Target& host_target();
/// A target by short name ("avx2") for cross compilation and dumps. Errors: unsupported.
Target cpu_target(std::string_view name);
/// A GPU target: "sm_80" or "sm_90a", with the facts of the profile that stands for it. Errors: unsupported.
Target gpu_target(std::string_view name);
/// The target of a GPU. Errors: unsupported where no code runs on it.
Target gpu_target(const GpuFacts& facts);
/// Short names, best first.
std::vector<std::string> cpu_target_names();
/// True when the running machine can execute code for `target`. Asks Linux for the process's permission to use matrix
/// registers, once.
bool is_executable(const Target& target);

// A caller of the compiler may ask for these beside the binary.

/// Called once a stage with its name ("tile", "ll", "asm", "ptx" or "cubin") and text, a cubin's bytes; an empty
/// function asks for nothing.
using StageDump = std::function<void(std::string_view stage, std::string_view text)>;

/// The sanitizer of this process that watches generated code for CPUs; for tests.
enum class Sanitizer : uint8_t { none, thread, address };

}  // namespace seqtile
