// autotune/worker/launcher.h -- launches of one candidate, whole or on a slice of its grid.
// SPDX-License-Identifier: Apache-2.0
//
// A slice is up to 16 runs of neighbouring programs, spread evenly over the grid from its first program to its last, so
// that the cheap and the expensive programs of a causal operation, or of several outputs, are in it in their
// proportion. A grid of few programs would be misjudged, and a kernel with a workspace counts on all of its programs:
// these are not sliced.
#pragma once
#include <algorithm>
#include <memory>
#include <span>
#include <vector>

#include "autotune/launch.h"
#include "jit/device.h"

namespace seqtile::autotune {

/// A loaded candidate with what its launches need.
struct LoadedCandidate {
  Config config;
  std::unique_ptr<LoadedKernel> kernel;
  std::array<SizeExpr, 3> grid;
  std::vector<Workspace> workspaces;
};

/// Runs about `fraction` of the grid (1: all of it). Returns the fraction that was really run.
inline double launch_fraction(Device& device, const LoadedCandidate& candidate, const Grid& grid,
                              std::span<const uint64_t> slots, double fraction, int threads) {
  const int64_t total = grid[0] * grid[1] * grid[2];
  const int64_t wanted =
      std::max(4 * int64_t{threads}, static_cast<int64_t>(fraction * static_cast<double>(total) + 0.5));
  if (fraction >= 1 || total < 2 * wanted || !candidate.workspaces.empty()) {
    device.launch(*candidate.kernel, grid, slots);
    return 1;
  }
  const int64_t segments = std::clamp<int64_t>(wanted / threads, 2, 16), count = wanted / segments;
  for (int64_t s = 0; s < segments; ++s)
    device.launch(*candidate.kernel, grid, slots, {s * (total - count) / (segments - 1), count});
  return static_cast<double>(count * segments) / static_cast<double>(total);
}

}  // namespace seqtile::autotune
