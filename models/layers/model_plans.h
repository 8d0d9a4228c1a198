// models/layers/model_plans.h -- the ways to share a decoder model that have a name, as what a planner may still
// choose.
// SPDX-License-Identifier: Apache-2.0
//
// Each says which strategies of calibrated costs (docs/planner.md) are left to each operator of model_graph(), over a
// mesh of one axis. Prices, changes of layout and their sum stay the planner's.
#pragma once
#include <array>
#include <string_view>

#include "planner/graph/graph.h"
#include "planner/solver/restriction.h"

namespace seqtile::models {

enum class ModelPlan {
  replicated,       ///< every rank computes all of it
  tensor,           ///< heads and columns are cut, what they add up to is all-reduced
  tensor_sequence,  ///< the same; between products rows are cut, gathered and scattered within them
  context,          ///< rows are cut everywhere, attention gathers keys and values
};
inline constexpr std::array kModelPlans{ModelPlan::replicated, ModelPlan::tensor, ModelPlan::tensor_sequence,
                                        ModelPlan::context};

std::string_view plan_name(ModelPlan plan);

/// `graph` has its strategies. Errors: invalid_argument where an operator has not the one that the plan wants of it
/// (sizes that the ranks do not divide, an operator of another model): the line names both.
planner::Allowed allowed_strategies(const planner::Graph& graph, ModelPlan plan);

}  // namespace seqtile::models
