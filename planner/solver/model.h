// planner/solver/model.h -- a problem's free choices: variables with costs, memory and functions of two of them.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "planner/graph/problem.h"
#include "planner/solver/elimination.h"

namespace seqtile::planner {

/// Nodes that follow are one variable with their leader. Strategies that another one beats whatever the neighbours do
/// are left out. Sizes are whole bytes, rounded up, so that every sum of them is exact.
struct ProblemModel {
  Model model;
  /// As of a problem, of a variable.
  struct Live {
    int variable, begin, end;
    std::vector<double> bytes;
  };
  std::vector<std::vector<double>> memory;  ///< by variable, by value: held all the time
  std::vector<Live> live;
  int num_steps = 1;
  std::vector<int> variable_of;            ///< by node
  std::vector<std::vector<int>> strategy;  ///< by variable, by value: the strategy of its nodes

  Choices choices(const std::vector<int>& assignment) const;
};

/// `has_budget`: to beat another strategy one may not hold more at any time; else not more in all.
ProblemModel make_model(const Problem& problem, bool has_budget);

}  // namespace seqtile::planner
