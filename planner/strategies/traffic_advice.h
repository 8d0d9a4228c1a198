// planner/strategies/traffic_advice.h -- finds the fastest of nine ways to sum gradients, and of their combinations.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "planner/strategies/gradient_traffic.h"

namespace seqtile::planner {

struct PricedWay {
  int number = 0;  ///< 1..9: place in the list of docs/planner.md; 0: a combination
  GradientWay way;
  TrafficCost cost;
};

struct TrafficAdvice {
  double gradient_bytes = 0, backward_s = 0;
  std::vector<PricedWay> ways;  ///< the nine, each alone; 3 and 4 have two forms
  PricedWay best;               ///< best combination without compression: the fastest, then the smallest
  PricedWay best_lossy;         ///< best combination with compression
  std::string why;              ///< one line: how much longer the best one would take without each of its parts
};
/// Prices all ways.
/// Errors: as traffic_cost().
TrafficAdvice advise(const std::vector<Gradient>& gradients, const Mesh& mesh, const Calibration& calibration);

}  // namespace seqtile::planner
