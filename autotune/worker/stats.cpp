// autotune/worker/stats.cpp -- see stats.h.
// SPDX-License-Identifier: Apache-2.0
#include "autotune/worker/stats.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace seqtile::autotune {

double quantile(std::vector<double> values, double q) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const double position = q * static_cast<double>(values.size() - 1);
  const size_t below = static_cast<size_t>(position), above = std::min(below + 1, values.size() - 1);
  return values[below] + (position - static_cast<double>(below)) * (values[above] - values[below]);
}

double median(std::span<const double> values) { return quantile({values.begin(), values.end()}, 0.5); }

double median_upper_bound(std::vector<double> values, double alpha) {
  // P(k-th largest of n < median) = P(at most k - 1 of n values lie above it) = sum of C(n, i) / 2^n for i < k.
  const size_t n = values.size();
  double term = std::exp2(-static_cast<double>(n)), tail = 0;
  size_t k = 0;
  while (k < n && tail + term <= alpha) {
    tail += term;
    term *= static_cast<double>(n - k) / static_cast<double>(k + 1);
    ++k;
  }
  if (k == 0) return std::numeric_limits<double>::infinity();
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(k - 1), values.end(), std::greater<>());
  return values[k - 1];
}

double final_bound(const std::vector<double>& ratios) {
  if (ratios.size() < kFinalRounds) return quantile(ratios, 1);
  return median_upper_bound(ratios, ratios.size() == kFinalRounds ? 0.01 : 0.003);
}

std::vector<double> paired_ratios(std::span<const double> a, std::span<const double> b) {
  std::vector<double> ratios;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) ratios.push_back(a[i] / b[i]);
  return ratios;
}

double self_noise(std::span<const double> values) {
  std::vector<double> even, odd;
  for (size_t i = 0; i < values.size(); ++i) (i % 2 ? odd : even).push_back(values[i]);
  return odd.empty() ? 0 : std::abs(median(even) / median(odd) - 1);
}

}  // namespace seqtile::autotune
