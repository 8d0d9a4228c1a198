// autotune/gpu_model.h -- how long a launch takes on a GPU, from what its programs do: for ranking, not for reports.
// SPDX-License-Identifier: Apache-2.0
//
// The model is a roofline. A multiprocessor is limited by tensor cores, instruction issue, shared memory, L2, and by
// latency that few loads in flight do not hide. The launch runs in waves over all multiprocessors, and is limited by
// the memory's bandwidth as well. An operation states the work of one program; counts of the PTX machine may replace
// its estimates. Facts of the device come from jit/device/gpu_facts.h. Factors in this model are taken from public
// measurements and are not fitted to any kernel. docs/tuning.md#gpus has the formulas.
#pragma once
#include <cstdint>

#include "jit/base/dtype.h"
#include "jit/device/target.h"

namespace seqtile::autotune {

/// The work of one launch under one configuration.
struct GpuWork {
  // The launch:
  double programs = 1;
  int64_t threads = 128;     ///< per program
  int64_t shared_bytes = 0;  ///< per program
  int64_t registers = 64;    ///< per thread
  double memory_bytes = 0;   ///< traffic of the whole launch with memory
  // One program:
  double tensor_flops = 0;  ///< padding of tiles included
  DType tensor_dtype = DType::bf16;
  bool uses_wgmma = false;  ///< instructions of Hopper; other products reach half of Hopper's peak
  double warp_instructions = 0;
  double special_lane_ops = 0;   ///< exponentials, roots, divisions
  double shared_wavefronts = 0;  ///< accesses of 128 bytes, conflicts included
  double l2_bytes = 0;           ///< read and written through the L2
  double turns = 1;              ///< of the main loop; each turn waits for its loads
  int64_t stages = 1;            ///< turns whose loads are in flight together
  double meeting_cycles = 0;     ///< per turn, in which blocks of a cluster wait for each other
};

/// Counts of the PTX machine for one whole program.
struct ProgramCounts {
  double warp_instructions = 0, global_sectors = 0, shared_wavefronts = 0;

  void add(const ProgramCounts& other, double weight);
};

/// Replaces the estimates in `work` by counts; negative counts become 0.
void apply_counts(const ProgramCounts& counts, GpuWork& work);

/// True if products of `rows` rows may use wgmma: the target has it, elements have two bytes, and each group of four
/// warps gets a multiple of 64 rows. The code generator may still decide otherwise.
bool may_use_wgmma(const Target& target, DType dtype, int64_t rows, int64_t num_warps);

/// Number of programs that one multiprocessor holds at once; 0 if not even one fits.
int64_t resident_programs(const GpuWork& work, const GpuFacts& gpu);

/// Predicted microseconds of a launch; infinity if a program does not fit a multiprocessor.
double predict_us(const GpuWork& work, const GpuFacts& gpu);

}  // namespace seqtile::autotune
