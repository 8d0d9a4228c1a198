// autotune/call/launcher.h -- launches of one candidate, whole or on a sample of its grid.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <memory>
#include <span>
#include <vector>

#include "autotune/engine/launch.h"
#include "seqtile/device.h"

namespace seqtile::autotune {

/// A loaded candidate with its grid and workspaces.
struct LoadedCandidate {
  Config config;
  std::unique_ptr<LoadedKernel> kernel;
  std::array<SizeExpr, 3> grid;
  std::vector<Workspace> workspaces;
  bool has_uneven_programs = false;  ///< as OpDef's
};

/// A run of adjacent programs in a slice of the grid.
struct GridSample {
  int64_t first, count;
  double stands_for;  ///< number of programs of the whole grid that the run represents
};

/// A slice with about `fraction` of the grid's programs; empty if the grid should run whole (few programs, or
/// `fraction` near 1). Programs on the grid's upper edges often have less work, so that four regions are sampled
/// separately: the inside, the upper edge of the first dimension, the upper edge of the others, and the corner.
/// Programs of the inside are spread over both directions, because the work of a causal operation grows along the grid.
std::vector<GridSample> sample_grid(const Grid& grid, double fraction, int threads);

/// sample_grid(); empty for a candidate with workspaces, whose programs must all run, and for one with uneven programs.
std::vector<GridSample> sample_for(const LoadedCandidate& candidate, const Grid& grid, double fraction, int threads);

}  // namespace seqtile::autotune
