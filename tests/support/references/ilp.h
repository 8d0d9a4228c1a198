// tests/support/references/ilp.h -- planning problems as integer programs, for the solver cbc (package coinor-cbc).
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <optional>
#include <string>

#include "planner/graph/problem.h"

namespace seqtile::testing {

/// True if cbc is on this machine.
bool has_ilp_solver();

/// The problem in CPLEX's LP format. It has a binary variable for each strategy of each node that follows no other
/// node, and a variable between 0 and 1 for each pair of strategies of an edge. The rows and columns of an edge add up
/// to the strategies' variables. A finite budget bounds the strategies' bytes.
std::string integer_program(const planner::Problem& problem, double memory_budget);

/// An optimal plan by cbc; nullopt if cbc says that there is none. Requires: has_ilp_solver().
std::optional<planner::Choices> solve_integer_program(const planner::Problem& problem, double memory_budget);

}  // namespace seqtile::testing
