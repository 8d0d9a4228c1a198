// autotune/worker/launcher.h -- launches of one candidate, whole or on a slice of its grid.
// SPDX-License-Identifier: Apache-2.0
//
// A slice is a few runs of neighbouring programs, spread evenly over the grid, so that a causal operation's cheap and
// expensive programs are both in it. A kernel with a workspace counts on all of its programs and is never sliced.
#pragma once
#include <span>

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
  const int64_t least = 2 * int64_t{threads};
  const int64_t wanted = std::max(least, static_cast<int64_t>(fraction * static_cast<double>(total) + 0.5));
  if (fraction >= 1 || wanted >= total || !candidate.workspaces.empty()) {
    device.launch(*candidate.kernel, grid, slots);
    return 1;
  }
  const int64_t segments = std::clamp<int64_t>(wanted / least, 1, 4), count = wanted / segments;
  for (int64_t s = 0; s < segments; ++s) {
    const int64_t first = segments == 1 ? (total - count) / 2 : s * (total - count) / (segments - 1);
    device.launch(*candidate.kernel, grid, slots, {first, count});
  }
  return static_cast<double>(count * segments) / static_cast<double>(total);
}

}  // namespace seqtile::autotune
