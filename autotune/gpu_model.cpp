// autotune/gpu_model.cpp -- see gpu_model.h.
// SPDX-License-Identifier: Apache-2.0
#include "autotune/gpu_model.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace seqtile::autotune {
namespace {

// Rates are those of one multiprocessor, and hold roughly for Ampere and Hopper alike.
constexpr double kLaunchUs = 2.5;
constexpr double kLoadCycles = 800;       // latency of a load from memory
constexpr double kTurnCycles = 60;        // the barrier and other waits of one turn of a loop
constexpr double kStartCycles = 1500;     // arguments, first addresses, the end of the program
constexpr double kIssuePerCycle = 2.4;    // warp instructions; the hardware's peak is 4
constexpr double kSpecialPerCycle = 16;   // lanes
constexpr double kL2BytesPerCycle = 56;   // peak 64; products on an H200 move 48 and are not bound by the L2
constexpr double kMemoryShare = 0.9;      // reachable share of the memory's bandwidth
constexpr double kOverlap = 0.85;         // share of the other work that the bottleneck hides
constexpr double kReservedShared = 1024;  // bytes that the driver reserves per block
constexpr int64_t kMostPrograms = 32;     // blocks on a multiprocessor

double tensor_efficiency(const GpuWork& work, const GpuFacts& gpu) {
  if (work.uses_wgmma) return 0.8;
  return gpu.compute_capability >= 90 ? 0.5 : 0.85;
}

double tensor_tflops(DType dtype, const GpuFacts& gpu) {
  if (dtype == DType::f32) return gpu.tensor_tf32_tflops / 3;  // the sum of three products
  return gpu.tensor_f16_tflops;
}

/// Cycles that one program costs a multiprocessor with many resident programs.
double throughput_cycles(const GpuWork& work, const GpuFacts& gpu) {
  const double clocks_per_us = gpu.clock_mhz;
  const double flops_per_cycle =
      tensor_tflops(work.tensor_dtype, gpu) * 1e6 / (clocks_per_us * gpu.num_multiprocessors);
  const double parts[] = {work.tensor_flops / (flops_per_cycle * tensor_efficiency(work, gpu)),
                          work.warp_instructions / kIssuePerCycle, work.special_lane_ops / kSpecialPerCycle,
                          work.shared_wavefronts, work.l2_bytes / kL2BytesPerCycle};
  double sum = 0, most = 0;
  for (const double part : parts) sum += part, most = std::max(most, part);
  return most + (1 - kOverlap) * (sum - most);
}

/// Cycles of one program that has the multiprocessor to itself. The loads of a turn take one latency and the transfer
/// of the turn's bytes.
double serial_cycles(const GpuWork& work, double throughput) {
  const double loads = work.turns * kLoadCycles + work.l2_bytes / kL2BytesPerCycle;
  const double waiting = loads / static_cast<double>(std::max<int64_t>(work.stages - 1, 1));
  const double loop = work.stages > 1 ? std::max(waiting, throughput) : waiting + throughput;
  return kStartCycles + loop + work.turns * (kTurnCycles + work.meeting_cycles);
}

}  // namespace

void ProgramCounts::add(const ProgramCounts& other, double weight) {
  warp_instructions += weight * other.warp_instructions;
  global_sectors += weight * other.global_sectors;
  shared_wavefronts += weight * other.shared_wavefronts;
}

void apply_counts(const ProgramCounts& counts, GpuWork& work) {
  constexpr double kSectorBytes = 32;
  work.warp_instructions = std::max(0.0, counts.warp_instructions);
  work.shared_wavefronts = std::max(0.0, counts.shared_wavefronts);
  work.l2_bytes = std::max(0.0, kSectorBytes * counts.global_sectors);
}

bool may_use_wgmma(const Target& target, DType dtype, int64_t rows, int64_t num_warps) {
  return target.has_wgmma && dtype_bytes(dtype) == 2 && num_warps % 4 == 0 && rows % (16 * num_warps) == 0;
}

int64_t resident_programs(const GpuWork& work, const GpuFacts& gpu) {
  constexpr int64_t kRegisterUnit = 8, kMostRegisters = 255;
  const int64_t registers =
      std::min((work.registers + kRegisterUnit - 1) / kRegisterUnit * kRegisterUnit, kMostRegisters + 1);
  const int64_t by_threads = gpu.threads_per_multiprocessor / work.threads;
  const int64_t by_registers = gpu.registers_per_multiprocessor / (registers * work.threads);
  const int64_t by_shared =
      gpu.shared_bytes_per_multiprocessor / (work.shared_bytes + static_cast<int64_t>(kReservedShared));
  if (work.shared_bytes > gpu.shared_bytes_per_block) return 0;
  return std::min({by_threads, by_registers, by_shared, kMostPrograms});
}

double predict_us(const GpuWork& work, const GpuFacts& gpu) {
  const int64_t resident = resident_programs(work, gpu);
  if (resident < 1) return std::numeric_limits<double>::infinity();
  const double throughput = throughput_cycles(work, gpu), serial = serial_cycles(work, throughput);
  const auto wave = [&](double programs) { return std::max(programs * throughput, serial); };
  const double multiprocessors = gpu.num_multiprocessors, places = multiprocessors * static_cast<double>(resident);
  const double full = std::floor(work.programs / places), rest = work.programs - full * places;
  double cycles = full * wave(static_cast<double>(resident));
  if (rest > 0) cycles += wave(std::ceil(rest / multiprocessors));
  const double compute_us = cycles / gpu.clock_mhz;
  const double memory_us = work.memory_bytes / (gpu.memory_gb_per_s * 1e3 * kMemoryShare);
  return kLaunchUs + std::max(compute_us, memory_us) + (1 - kOverlap) * std::min(compute_us, memory_us);
}

}  // namespace seqtile::autotune
