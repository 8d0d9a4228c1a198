// tools/cli/plan/plan_answer.h -- what `seqtile plan` prints of a solution: tables and lines for people, JSON, other
// forms.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <nlohmann/json.hpp>

#include "tools/cli/output.h"
#include "tools/cli/plan/plan.h"

namespace seqtile::cli {

// Both return the exit code: kNo where no plan fits --memory. `ms`: what planning has taken.
/// `plan`: the choices, as the JSON object has them; `more`: its fields beside those of the solution.
int print_solution(const planner::Solution& solution, double ms, const PlanOptions& options, Json plan,
                   const Json& more = Json::object());
/// In the form that --format asks for.
int print_plan(const Priced& priced, const planner::Solution& solution, double ms, const PlanOptions& options);

}  // namespace seqtile::cli
