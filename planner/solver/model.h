// planner/solver/model.h -- the free choices of a problem: variables with costs, memory and functions of pairs.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "planner/graph/problem.h"
#include "planner/solver/elimination.h"

namespace seqtile::planner {

/// A node that follows shares the variable of its leader. Strategies that another strategy beats, whatever the
/// neighbours choose, are left out. Bytes are rounded up to whole numbers, so that their sums are exact.
struct ProblemModel {
  Model model;
  /// As planner::Live, for a variable instead of a node.
  struct Live {
    int variable, begin, end;
    std::vector<double> bytes;
  };
  std::vector<std::vector<double>> memory;  ///< by variable, by value: bytes held all the time
  std::vector<Live> live;
  int num_steps = 1;
  std::vector<int> variable_of;            ///< by node
  std::vector<std::vector<int>> strategy;  ///< by variable, by value: the strategy of its nodes

  /// The strategies of all nodes for the values of the variables.
  Choices choices(const std::vector<int>& assignment) const;
};

/// With a budget, a strategy beats another one only if it holds no more bytes at any time; without, if it holds no more
/// bytes in total.
ProblemModel make_model(const Problem& problem, bool has_budget);

}  // namespace seqtile::planner
