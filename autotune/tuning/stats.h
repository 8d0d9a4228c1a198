// autotune/tuning/stats.h -- medians and distribution-free bounds.
// SPDX-License-Identifier: Apache-2.0
//
// Times on shared machines drift by tens of percent within minutes, so candidates are compared by the ratios of their
// times within a round, and nothing is assumed about the distribution of those ratios.
#pragma once
#include <span>
#include <vector>

namespace seqtile::autotune {

/// Interpolated quantile, 0 for no values.
double quantile(std::vector<double> values, double q);
double median(std::span<const double> values);

/// The smallest order statistic that is an upper bound of the true median with error probability at most `alpha`;
/// infinity when there are too few values (seven are needed for 1 %).
double median_upper_bound(std::vector<double> values, double alpha);

/// a[i] / b[i] over the rounds that both took part in.
std::vector<double> paired_ratios(std::span<const double> a, std::span<const double> b);

/// |median of the even rounds / median of the odd rounds - 1|: what A against A shows.
double self_noise(std::span<const double> values);

}  // namespace seqtile::autotune
