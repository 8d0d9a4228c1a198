// tools/cli/plan/plan_answer.h -- prints a solution of `seqtile plan`: tables and lines for people, JSON, other forms.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <nlohmann/json.hpp>

#include "tools/cli/output.h"
#include "tools/cli/plan/plan.h"

namespace seqtile::cli {

// Both functions return the exit code: kNo if no plan fits --memory. `ms`: milliseconds that planning took.
/// `plan`: the choices, as JSON; `more`: further fields of the JSON object.
int print_solution(const planner::Solution& solution, double ms, const PlanOptions& options, Json plan,
                   const Json& more = Json::object());
/// Prints the plan in the form of --format.
int print_plan(const Priced& priced, const planner::Solution& solution, double ms, const PlanOptions& options);

}  // namespace seqtile::cli
