// planner/strategies/traffic_advice.h -- which way to sum gradients is the fastest, of nine and their combinations.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "planner/strategies/gradient_traffic.h"

namespace seqtile::planner {

struct PricedWay {
  int number = 0;  ///< 1..9, of the list in docs/planner.md; 0: a combination
  GradientWay way;
  TrafficCost cost;
};

struct TrafficAdvice {
  double gradient_bytes = 0, backward_s = 0;
  std::vector<PricedWay> ways;  ///< the nine, each by itself; 3 and 4 have two forms
  PricedWay best;               ///< of all combinations that send every gradient whole: the fastest, then the smallest
  PricedWay best_lossy;         ///< the same with compression
  std::string why;              ///< one sentence
};
/// Errors: as traffic_cost().
TrafficAdvice advise(const std::vector<Gradient>& gradients, const Mesh& mesh, const Calibration& calibration);

}  // namespace seqtile::planner
