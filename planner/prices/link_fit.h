// planner/prices/link_fit.h -- fits the cost of a message and of a byte to measured times of all-gathers.
// SPDX-License-Identifier: Apache-2.0
//
// Sizes span orders of magnitude, and noise only makes times longer, so the fit minimises relative errors: the sum over
// sizes of (model - t)^2 / (model t). A model of half a time weighs as much as a model of twice the time.
#pragma once
#include <span>

namespace seqtile::planner {

/// A measured all-gather over the ranks of one mesh axis.
struct GatherTime {
  double bytes = 0;  ///< that each rank has afterwards
  double seconds = 0;
};

struct LinkFit {
  double alpha = 0, beta = 0;  ///< seconds of a message, seconds of a byte
  double residual = 0;         ///< root mean square of (model - t) / sqrt(model t)
};

/// The alpha and beta, neither below 0, with the least residual. The model of an all-gather over `ranks` ranks is
/// (ranks-1) alpha + (ranks-1)/ranks bytes beta.
/// Errors: invalid_argument on one rank, fewer than two sizes, or a size or time that is not a finite number above 0.
LinkFit fit_links(int ranks, std::span<const GatherTime> times);

}  // namespace seqtile::planner
