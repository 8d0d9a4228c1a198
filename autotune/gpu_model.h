// autotune/gpu_model.h -- counts of the PTX machine for the model of a GPU's time, and limits that the model has.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cstdint>

#include "seqtile/op.h"

namespace seqtile::autotune {

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

}  // namespace seqtile::autotune
