// jit/device/target.cpp -- the table of CPU targets and what the running machine can execute; see seqtile/target.h.
// SPDX-License-Identifier: Apache-2.0
#include "seqtile/target.h"

#include "jit/base/forever.h"

#include <algorithm>
#include <fstream>

#include "jit/base/env.h"
#include "jit/base/nearest_word.h"
#include "jit/device/gpu_facts.h"
#include "seqtile/device.h"
#include "seqtile/error.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#endif

namespace seqtile {
namespace {

constexpr const char* kX86Triple = "x86_64-unknown-linux-gnu";
constexpr const char* kArmTriple = "aarch64-unknown-linux-gnu";

/// Best first. The processor names are LLVM's micro-architecture levels, so that a binary serves every machine of a
/// level and not only the one it was tuned on.
const std::vector<Target>& table() {
  static const auto& targets = forever(std::vector<Target>{
      {.name = "cpu:amx",
       .triple = kX86Triple,
       .cpu = "x86-64-v4",
       .features = "+avx512bf16,+amx-tile,+amx-bf16",
       .vector_bytes = 64,
       .num_vector_registers = 32,
       .has_bf16_dot = true,
       .has_matrix_registers = true,
       .has_fma = true},
      {.name = "cpu:avx512bf16",
       .triple = kX86Triple,
       .cpu = "x86-64-v4",
       .features = "+avx512bf16",
       .vector_bytes = 64,
       .num_vector_registers = 32,
       .has_bf16_dot = true,
       .has_fma = true},
      {.name = "cpu:avx512",
       .triple = kX86Triple,
       .cpu = "x86-64-v4",
       .features = "",
       .vector_bytes = 64,
       .num_vector_registers = 32,
       .has_bf16_dot = false,
       .has_fma = true},
      {.name = "cpu:avx2",
       .triple = kX86Triple,
       .cpu = "x86-64-v3",
       .features = "",
       .vector_bytes = 32,
       .num_vector_registers = 16,
       .has_bf16_dot = false,
       .has_fma = true},
      {.name = "cpu:generic",
       .triple = kX86Triple,
       .cpu = "x86-64",
       .features = "",
       .vector_bytes = 16,
       .num_vector_registers = 16,
       .has_bf16_dot = false,
       .has_fma = false},
      {.name = "cpu:neon",
       .triple = kArmTriple,
       .cpu = "generic",
       .features = "+neon",
       .vector_bytes = 16,
       .num_vector_registers = 32,
       .has_bf16_dot = false,
       .has_fma = true},
  });
  return targets;
}

std::string_view short_name(const Target& target) { return std::string_view(target.name).substr(4); }

#if defined(__x86_64__)
/// The micro-architecture level (x86-64-v1, v3 or v4) by CPUID; the operating system's part (saved vector state) is
/// included in what __builtin_cpu_supports answers.
int x86_level() {
  unsigned eax = 0, ebx = 0, leaf1_ecx = 0, extended_ecx = 0, edx = 0;
  __builtin_cpu_init();
  __get_cpuid(1, &eax, &ebx, &leaf1_ecx, &edx);
  __get_cpuid(0x80000001, &eax, &ebx, &extended_ecx, &edx);
  const bool v3 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi") &&
                  __builtin_cpu_supports("bmi2") && (leaf1_ecx & bit_F16C) && (leaf1_ecx & bit_MOVBE) &&
                  (extended_ecx & bit_LZCNT);
  const bool v4 = v3 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                  __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
                  __builtin_cpu_supports("avx512vl");
  return v4 ? 4 : v3 ? 3 : 1;
}

/// Matrix registers of bf16, and Linux lets this process have them: their state is large, so they are asked for.
bool has_amx() {
  constexpr unsigned kAmxBf16 = 1u << 22, kAmxTile = 1u << 24;  // leaf 7, edx
  constexpr int kRequestPermission = 0x1023, kTileData = 18;    // arch_prctl
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  if (!__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) || !(edx & kAmxBf16) || !(edx & kAmxTile)) return false;
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

bool machine_executes(std::string_view name) {
  static const int level = x86_level();
  static const bool amx = level >= 4 && __builtin_cpu_supports("avx512bf16") && has_amx();
  if (name == "amx") return amx;
  if (name == "avx512bf16") return level >= 4 && __builtin_cpu_supports("avx512bf16");
  return name == "avx512" ? level >= 4 : name == "avx2" ? level >= 3 : name == "generic";
}
#elif defined(__aarch64__)
bool machine_executes(std::string_view name) { return name == "neon"; }
#else
#error "seqtile runs on x86-64 and AArch64"
#endif

/// Bytes of a cache of CPU 0 that holds data, from the kernel's topology files; 0 where they say nothing.
int64_t sysfs_cache_bytes(int level) {
  for (int index = 0; index < 8; ++index) {
    const std::string folder = fmt::format("/sys/devices/system/cpu/cpu0/cache/index{}/", index);
    int found = 0;
    std::string type, size;
    if (!(std::ifstream(folder + "level") >> found)) return 0;
    std::ifstream(folder + "type") >> type;
    std::ifstream(folder + "size") >> size;
    if (found != level || type == "Instruction" || size.empty()) continue;
    const int64_t unit = size.back() == 'K' ? 1 << 10 : size.back() == 'M' ? 1 << 20 : 1;
    return std::strtoll(size.c_str(), nullptr, 10) * unit;
  }
  return 0;
}

/// The topology files give one core's view (a slice of the last level on chiplets); sysconf is the fallback where a
/// container hides them, and the default of the table where both are silent.
void set_cache_bytes(int level, int sysconf_name, int64_t& bytes) {
  int64_t found = sysfs_cache_bytes(level);
  if (found <= 0) found = sysconf(sysconf_name);
  if (found > 0) bytes = found;
}

Target detect_host() {
  const auto forced = env::cpu_target();
  Target target;
  if (forced) {
    target = name_errors("SEQTILE_CPU_TARGET", [&] { return cpu_target(*forced); });
    if (!is_executable(target)) {
      std::vector<std::string_view> executable;
      for (const Target& other : table())
        if (is_executable(other)) executable.push_back(short_name(other));
      throw Error(ErrorCode::unsupported,
                  fmt::format("SEQTILE_CPU_TARGET={}: this machine cannot execute it; it executes {}", *forced,
                              fmt::join(executable, ", ")));
    }
  } else {
    target = *std::find_if(table().begin(), table().end(), is_executable);
  }
  set_cache_bytes(1, _SC_LEVEL1_DCACHE_SIZE, target.l1_bytes);
  set_cache_bytes(2, _SC_LEVEL2_CACHE_SIZE, target.l2_bytes);
  set_cache_bytes(3, _SC_LEVEL3_CACHE_SIZE, target.l3_bytes);
  return target;
}

}  // namespace

const Target& host_target() {
  static const Target& target = forever(detect_host());
  return target;
}

Target cpu_target(std::string_view name) {
  for (const Target& target : table())
    if (short_name(target) == name) return target;
  throw Error(ErrorCode::unsupported,
              fmt::format("unknown CPU target \"{}\"; the targets are {}{}", name, fmt::join(cpu_target_names(), ", "),
                          did_you_mean(name, cpu_target_names())));
}

Target gpu_target(std::string_view name) {
  // The oldest PTX versions that have every instruction used, so that old drivers load it.
  Target target;
  target.name = target.cpu = std::string(name);
  target.triple = "nvptx64-nvidia-cuda";
  target.has_fma = target.has_bf16_dot = true;
  if (name == "sm_80") target.features = "+ptx74";
  else if (name == "sm_90a") target.features = "+ptx80", target.has_wgmma = true;
  else
    throw Error(ErrorCode::unsupported, fmt::format("unknown GPU target \"{}\"; the targets are sm_80 and sm_90a{}",
                                                    name, did_you_mean(name, {"sm_80", "sm_90a"})));
  target.gpu = find_profile(name)->facts;
  target.shared_bytes = target.gpu.shared_bytes_per_block;
  return target;
}

Target gpu_target(const GpuFacts& facts) {
  Target target = gpu_target(gpu_target_name(facts));
  target.gpu = facts;
  target.loads_cubins = true;
  target.shared_bytes = facts.shared_bytes_per_block;
  return target;
}

std::vector<std::string> cpu_target_names() {
  std::vector<std::string> names;
  for (const Target& target : table()) names.emplace_back(short_name(target));
  return names;
}

bool is_executable(const Target& target) { return machine_executes(short_name(target)); }

}  // namespace seqtile
