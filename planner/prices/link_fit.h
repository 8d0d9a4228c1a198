// planner/prices/link_fit.h -- from times of all-gathers to what a message and a byte cost.
// SPDX-License-Identifier: Apache-2.0
//
// Sizes span orders of magnitude and times are never too short by noise alone, so errors are relative, and a model that
// is half of a time counts as one that is twice as much: the sum over sizes of (model - t)^2 / (model t) is least.
#pragma once
#include <span>

namespace seqtile::planner {

/// An all-gather over the ranks of a mesh axis.
struct GatherTime {
  double bytes = 0;  ///< that each rank has afterwards
  double seconds = 0;
};

struct LinkFit {
  double alpha = 0, beta = 0;  ///< seconds of a message and of a byte
  double residual = 0;         ///< root mean square of (model - t) / sqrt(model t)
};

/// The alpha and beta of `ranks` whose model, (ranks-1) alpha + (ranks-1)/ranks bytes beta, has the least residual;
/// neither is below 0.
/// Errors: invalid_argument (one rank, fewer than two sizes, a size or time that is not a finite number above 0).
LinkFit fit_links(int ranks, std::span<const GatherTime> times);

}  // namespace seqtile::planner
