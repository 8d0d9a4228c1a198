// autotune/call/launcher.h -- launches of one candidate, whole or on a sample of its grid.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <memory>
#include <span>
#include <vector>

#include "autotune/engine/launch.h"
#include "jit/device/device.h"

namespace seqtile::autotune {

/// A loaded candidate with what its launches need.
struct LoadedCandidate {
  Config config;
  std::unique_ptr<LoadedKernel> kernel;
  std::array<SizeExpr, 3> grid;
  std::vector<Workspace> workspaces;
};

/// Neighbouring programs that are run, and how many programs of the grid they stand for.
struct GridSample {
  int64_t first, count;
  double stands_for;
};

/// A sample of about `fraction` of the grid; empty when the grid should run whole (few programs, or `fraction` near 1).
/// Programs on the grid's upper edges often have less to do: inside, upper edge of the first dimension, upper edge of
/// the others and the corner are sampled each for itself. Inside, programs are spread over both directions, so that
/// those of a causal operation, whose work grows along the grid, are met in their proportion.
std::vector<GridSample> sample_grid(const Grid& grid, double fraction, int threads);

/// The sample that fits the candidate: a kernel with a workspace counts on all of its programs.
std::vector<GridSample> sample_for(const LoadedCandidate& candidate, const Grid& grid, double fraction, int threads);

}  // namespace seqtile::autotune
