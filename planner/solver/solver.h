// planner/solver/solver.h -- the best plan, or how far from it the one that was found may be.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <limits>

#include "planner/graph/problem.h"

namespace seqtile::planner {

struct SolveOptions {
  double memory_budget = std::numeric_limits<double>::infinity();  ///< bytes of a device
  int64_t table_limit = int64_t{1} << 22;                          ///< entries; larger ones are not made
  // To close the gap of a budget:
  int most_searches = 2000;                       ///< eliminations
  int64_t most_entries = int64_t{1'000'000'000};  ///< that all of them together may take minima over; 50 may always be
};

struct Solution {
  bool is_feasible = true;  ///< false: no plan was found within the budget; below smallest_budget_bound there is none
  Choices choices;          ///< where none is: those of the least memory
  double objective = 0;
  double lower_bound = 0;  ///< no plan within the budget has less
  double memory = 0;
  int width = 0;       ///< of the elimination: its largest table has one variable more
  double gap() const;  ///< relative
  bool is_exact() const { return gap() <= 1e-12; }
  // Where a budget is given:
  double smallest_budget = 0;        ///< that some plan keeps
  double smallest_budget_bound = 0;  ///< no plan keeps less
};

/// Errors: invalid_argument, as check(Problem).
Solution solve(const Problem& problem, const SolveOptions& options = {});

}  // namespace seqtile::planner
