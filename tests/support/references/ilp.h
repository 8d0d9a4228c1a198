// tests/support/references/ilp.h -- planning problems as integer programs, for the solver cbc of package coinor-cbc.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <optional>
#include <string>

#include "planner/graph/problem.h"

namespace seqtile::testing {

/// Whether the program is on this machine.
bool has_ilp_solver();

/// In CPLEX's LP format: a binary variable for each strategy of each node that follows none, and one between 0 and 1
/// for each pair of strategies of an edge, whose rows and columns add up to the strategies' variables. Strategies'
/// bytes add up to the budget at most, where it is finite.
std::string integer_program(const planner::Problem& problem, double memory_budget);

/// A plan that the program calls optimal; none where it says that there is none. Requires: has_ilp_solver().
std::optional<planner::Choices> solve_integer_program(const planner::Problem& problem, double memory_budget);

}  // namespace seqtile::testing
