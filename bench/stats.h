// bench/stats.h -- order statistics of a few dozen samples.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <algorithm>
#include <cmath>
#include <vector>

namespace seqtile::bench {

/// The `fraction` quantile with linear interpolation; 0 for no samples.
inline double quantile(std::vector<double> samples, double fraction) {
  if (samples.empty()) return 0;
  std::sort(samples.begin(), samples.end());
  const double position = fraction * static_cast<double>(samples.size() - 1);
  const auto below = static_cast<size_t>(position);
  const size_t above = std::min(below + 1, samples.size() - 1);
  return samples[below] + (position - static_cast<double>(below)) * (samples[above] - samples[below]);
}

inline double median(const std::vector<double>& samples) { return quantile(samples, 0.5); }

/// 0 for no samples. Requires: all samples > 0.
inline double geometric_mean(const std::vector<double>& samples) {
  if (samples.empty()) return 0;
  double sum = 0;
  for (double sample : samples) sum += std::log(sample);
  return std::exp(sum / static_cast<double>(samples.size()));
}

}  // namespace seqtile::bench
