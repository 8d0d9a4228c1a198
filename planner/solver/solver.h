// planner/solver/solver.h -- finds the best plan, or a plan and a bound of how much better the best one can be.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <limits>

#include "planner/graph/problem.h"

namespace seqtile::planner {

struct SolveOptions {
  double memory_budget = std::numeric_limits<double>::infinity();  ///< bytes that a device may hold
  int64_t table_limit = int64_t{1} << 22;                          ///< largest table of the elimination, in entries
  // Limits of the search that closes the gap of a budget:
  int most_searches = 2000;  ///< runs of the elimination
  /// Table entries minimised over in all runs together; 50 runs are always allowed.
  int64_t most_entries = int64_t{1'000'000'000};
};

struct Solution {
  bool is_feasible = true;  ///< false: no plan within the budget was found; none exists below smallest_budget_bound
  Choices choices;          ///< if not feasible: the plan with the least memory that was found
  double objective = 0;
  double lower_bound = 0;  ///< no plan within the budget has a lower objective
  double memory = 0;
  int width = 0;       ///< width of the elimination
  double gap() const;  ///< (objective - lower_bound) / |objective|, at least 0
  bool is_exact() const { return gap() <= 1e-12; }
  // Only where a budget is given:
  double smallest_budget = 0;        ///< bytes of the leanest plan that was found
  double smallest_budget_bound = 0;  ///< no plan keeps a smaller budget
};

/// Minimises the objective subject to the memory budget.
/// Errors: invalid_argument as check(Problem), and where a sum of costs or sizes is not finite.
Solution solve(const Problem& problem, const SolveOptions& options = {});

}  // namespace seqtile::planner
