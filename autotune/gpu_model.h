// autotune/gpu_model.h -- how long a launch takes on a GPU, from what its programs do: for ranking, not for reports.
// SPDX-License-Identifier: Apache-2.0
//
// A roofline of one multiprocessor (tensor cores, instruction issue, shared memory, L2) under its occupancy, in waves
// over all of them, against the memory's bandwidth, plus the latency that few loads in flight do not hide. An operation
// says what one program does; the PTX machine's counters may then replace what was only estimated. The numbers come
// from jit/device/gpu_facts.h; factors of this file are leads from public measurements and are not fitted to any
// kernel. docs/tuning.md#gpus has the formulas.
#pragma once
#include <cstdint>

#include "jit/base/dtype.h"
#include "jit/device/target.h"

namespace seqtile::autotune {

/// What a configuration decides about speed.
struct GpuWork {
  // The launch:
  double programs = 1;
  int64_t threads = 128;     ///< of a program
  int64_t shared_bytes = 0;  ///< of a program
  int64_t registers = 64;    ///< of a thread
  double memory_bytes = 0;   ///< that the launch moves from and to memory
  // One program:
  double tensor_flops = 0;  ///< with what tiles pad
  DType tensor_dtype = DType::bf16;
  bool uses_wgmma = false;  ///< Hopper's own products; others reach half of its peak
  double warp_instructions = 0;
  double special_lane_ops = 0;   ///< exponentials, roots, divisions
  double shared_wavefronts = 0;  ///< accesses of 128 bytes, conflicts included
  double l2_bytes = 0;           ///< that it reads and writes through the L2
  double turns = 1;              ///< of its main loop: each waits for its loads
  int64_t stages = 1;            ///< turns whose loads are in flight together
  double meeting_cycles = 0;     ///< of a turn, in which blocks of a cluster wait for each other
};

/// What a program did when the PTX machine ran it (per program, whole loop).
struct ProgramCounts {
  double warp_instructions = 0, global_sectors = 0, shared_wavefronts = 0;

  void add(const ProgramCounts& other, double weight);
};

/// Puts counts in the place of estimates.
void apply_counts(const ProgramCounts& counts, GpuWork& work);

/// Whether products of `rows` rows can be wgmma's, of which a group of four warps takes 64: the code may still decide
/// otherwise.
bool may_use_wgmma(const Target& target, DType dtype, int64_t rows, int64_t num_warps);

/// Programs that one multiprocessor holds at once; 0: not even one fits.
int64_t resident_programs(const GpuWork& work, const GpuFacts& gpu);

/// Microseconds of a launch; infinity where a program does not fit a multiprocessor.
double predict_us(const GpuWork& work, const GpuFacts& gpu);

}  // namespace seqtile::autotune
