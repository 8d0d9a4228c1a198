// autotune/plan/model.h -- a problem's free choices: variables with costs, memory and functions of two of them.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "autotune/plan/elimination.h"
#include "autotune/plan/problem.h"

namespace seqtile::plan {

/// Nodes that follow are one variable with their leader. Strategies that another one beats whatever the neighbours do,
/// in cost and in memory, are left out.
struct ProblemModel {
  Model model;
  std::vector<std::vector<double>> memory;  ///< by variable, by value
  std::vector<int> variable_of;             ///< by node
  std::vector<std::vector<int>> strategy;   ///< by variable, by value: the strategy of its nodes

  Choices choices(const std::vector<int>& assignment) const;
};

ProblemModel make_model(const Problem& problem);

}  // namespace seqtile::plan
