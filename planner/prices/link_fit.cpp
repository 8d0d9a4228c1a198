// planner/prices/link_fit.cpp -- see link_fit.h.
// SPDX-License-Identifier: Apache-2.0
#include "planner/prices/link_fit.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "jit/base/counted.h"
#include "seqtile/error.h"

namespace seqtile::planner {
namespace {

void check(int ranks, std::span<const GatherTime> times) {
  const auto refuse = [](const std::string& what) { throw Error(ErrorCode::invalid_argument, what); };
  if (ranks < 2)
    refuse(fmt::format("an axis of {} sends nothing; links are measured between two or more", counted(ranks, "rank")));
  const auto is_positive = [](double value) { return std::isfinite(value) && value > 0; };
  bool has_two_sizes = false;
  for (const GatherTime& time : times) {
    if (!is_positive(time.bytes) || !is_positive(time.seconds))
      refuse(fmt::format("an all-gather of {} bytes in {} s cannot be fitted; both must be above 0", time.bytes,
                         time.seconds));
    has_two_sizes |= time.bytes != times.front().bytes;
  }
  if (!has_two_sizes) refuse("links are fitted to all-gathers of two sizes or more");
}

/// The best model among all multiples of `direction`, which fixes the ratio of alpha to beta.
LinkFit best_along(int ranks, std::span<const GatherTime> times, const LinkFit& direction) {
  double model_over_time = 0, time_over_model = 0;
  for (const GatherTime& time : times) {
    const double model = (ranks - 1) * (direction.alpha + time.bytes / ranks * direction.beta);
    model_over_time += model / time.seconds;
    time_over_model += time.seconds / model;
  }
  // (m - t)^2 / (m t) = m/t + t/m - 2. For a factor f the sum is f A + B / f - 2 count: least at f = sqrt(B / A).
  const double factor = std::sqrt(time_over_model / model_over_time), count = static_cast<double>(times.size());
  const double squares = std::max(0.0, 2 * std::sqrt(model_over_time * time_over_model) - 2 * count);
  return {factor * direction.alpha, factor * direction.beta, std::sqrt(squares / count)};
}

}  // namespace

LinkFit fit_links(int ranks, std::span<const GatherTime> times) {
  check(ranks, times);
  double log_bytes = 0;
  for (const GatherTime& time : times) log_bytes += std::log(time.bytes / ranks) / static_cast<double>(times.size());
  const double typical_bytes = std::exp(log_bytes);
  const auto of_ratio = [&](double x) { return best_along(ranks, times, {std::exp(x), 1 / typical_bytes}); };
  // The sum is convex in alpha and beta. Along the logarithm of their ratio it therefore falls, then rises.
  constexpr double kWidest = 20, kGolden = 0.6180339887498949;
  double low = -kWidest, high = kWidest;
  while (high - low > 1e-9) {
    const double left = high - kGolden * (high - low), right = low + kGolden * (high - low);
    if (of_ratio(left).residual <= of_ratio(right).residual) high = right;
    else low = left;
  }
  LinkFit best = of_ratio((low + high) / 2);
  for (const LinkFit& edge : {best_along(ranks, times, {0, 1}), best_along(ranks, times, {1, 0})})
    if (edge.residual <= best.residual) best = edge;
  return best;
}

}  // namespace seqtile::planner
