// autotune/call/launcher.cpp -- see launcher.h.
// SPDX-License-Identifier: Apache-2.0
#include "autotune/call/launcher.h"

#include <algorithm>

namespace seqtile::autotune {
namespace {

constexpr int64_t kMostRuns = 16;

/// Programs [from0, to0) x [from1, to1) of a grid whose first dimension has `width` programs.
struct Region {
  int64_t width, from0, to0, from1, to1;
};

void sample_region(const Region& r, double fraction, int64_t turn, int64_t least, std::vector<GridSample>& samples) {
  const int64_t w0 = r.to0 - r.from0, w1 = r.to1 - r.from1, size = w0 * w1;
  if (size <= 0) return;
  const int64_t wanted =
      std::clamp(static_cast<int64_t>(fraction * static_cast<double>(size) + 0.5), std::min(least, size), size);
  const int64_t count = std::min(w0, std::max<int64_t>(1, wanted / kMostRuns / turn) * turn);
  const int64_t runs = std::clamp<int64_t>((wanted + count - 1) / count, 1, kMostRuns);
  for (int64_t s = 0; s < runs; ++s) {
    const int64_t at0 = r.from0 + (w0 - count) * (2 * s + 1) / (2 * runs);
    const int64_t at1 = r.from1 + (s * 7 + 3) % 16 * w1 / 16;  // 7 and 16 are coprime: 16 runs are spread evenly
    samples.push_back({at1 * r.width + at0, count, static_cast<double>(size) / static_cast<double>(runs)});
  }
}

}  // namespace

std::vector<GridSample> sample_grid(const Grid& grid, double fraction, int threads) {
  int64_t width = grid[0], lines = grid[1] * grid[2], turn = threads;
  const int64_t total = width * lines;
  if (width < 2 * threads + 1) {  // a line is too short for all threads: sample whole lines, edges included
    turn = (threads + width - 1) / std::max<int64_t>(width, 1) * width;
    width = total, lines = 1;
  }
  if (fraction >= 1) return {};
  const int64_t inner0 = width > 1 ? width - 1 : 1, inner1 = lines > 1 ? lines - 1 : 1;
  std::vector<GridSample> samples;
  sample_region({width, 0, inner0, 0, inner1}, fraction, turn, 2 * turn, samples);
  sample_region({width, inner0, width, 0, inner1}, fraction, turn, 1, samples);
  sample_region({width, 0, inner0, inner1, lines}, fraction, turn, turn, samples);
  sample_region({width, inner0, width, inner1, lines}, fraction, turn, 1, samples);
  int64_t run = 0;
  for (const GridSample& sample : samples) run += sample.count;
  if (2 * run > total) return {};
  return samples;
}

std::vector<GridSample> sample_for(const LoadedCandidate& candidate, const Grid& grid, double fraction, int threads) {
  if (!candidate.workspaces.empty() || candidate.has_uneven_programs) return {};
  return sample_grid(grid, fraction, threads);
}

}  // namespace seqtile::autotune
