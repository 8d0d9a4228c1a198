// autotune/worker/stats.h -- medians and distribution-free bounds.
// SPDX-License-Identifier: Apache-2.0
//
// Times on shared machines drift by tens of percent within minutes. Candidates are therefore compared by the ratios of
// their times within a round, without an assumption about the distribution of the ratios.
#pragma once
#include <span>
#include <vector>

namespace seqtile::autotune {

/// Interpolated quantile; 0 for no values. Requires: 0 <= q <= 1.
double quantile(std::vector<double> values, double q);
/// quantile() at 0.5.
double median(std::span<const double> values);

/// Upper confidence bound of the true median: the smallest order statistic with an error probability of at most
/// `alpha`. Infinity for too few values; 1 % needs seven.
double median_upper_bound(std::vector<double> values, double alpha);

/// A challenger replaces the baseline only if it is faster by more than this share in fresh rounds.
constexpr double kMargin = 0.01;
/// The finals have kFinalRounds rounds, and kMoreRounds further ones if the first do not decide but the challenger's
/// median is faster.
constexpr int kFinalRounds = 7, kMoreRounds = 8;
/// Upper confidence bound of the median ratio challenger / baseline. The challenger wins if it is at most 1 - kMargin.
/// The error probability is 1 % for kFinalRounds ratios and 0.3 % for more. For fewer ratios the bound is the largest.
double final_bound(const std::vector<double>& ratios);

/// a[i] / b[i] for the rounds that both series have.
std::vector<double> paired_ratios(std::span<const double> a, std::span<const double> b);

/// |median of the even rounds / median of the odd rounds - 1|: the noise of comparing a candidate with itself.
double self_noise(std::span<const double> values);

}  // namespace seqtile::autotune
