// autotune/worker/stats.h -- medians and distribution-free bounds.
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

/// A challenger takes the yardstick's place only where it was faster by more than this in fresh rounds.
constexpr double kMargin = 0.01;
/// So many rounds decide; where they do not, but the challenger's median is faster, so many more follow.
constexpr int kFinalRounds = 7, kMoreRounds = 8;
/// What must be below 1 - kMargin of a challenger's ratios to the yardstick: an upper bound of their median with error
/// probability 1 % after kFinalRounds, 0.3 % after those and kMoreRounds; of fewer the largest.
double final_bound(const std::vector<double>& ratios);

/// a[i] / b[i] over the rounds that both took part in.
std::vector<double> paired_ratios(std::span<const double> a, std::span<const double> b);

/// |median of the even rounds / median of the odd rounds - 1|: what A against A shows.
double self_noise(std::span<const double> values);

}  // namespace seqtile::autotune
