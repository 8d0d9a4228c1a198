// models/layers/model_plans.h -- well-known plans of a decoder model, as restrictions of the planner's strategies.
// SPDX-License-Identifier: Apache-2.0
//
// A plan says which strategies of calibrated costs (docs/planner.md) each operator of model_graph() may keep, over a
// mesh of one axis. The planner still chooses the changes of layout and computes all prices.
#pragma once
#include <array>
#include <string_view>

#include "planner/graph/graph.h"
#include "planner/solver/restriction.h"

namespace seqtile::models {

enum class ModelPlan {
  replicated,       ///< every rank computes everything
  tensor,           ///< heads and columns are cut, partial sums are all-reduced
  tensor_sequence,  ///< as `tensor`; rows are cut between products, which gather and scatter them
  context,          ///< rows are cut everywhere, attention gathers keys and values
};
inline constexpr std::array kModelPlans{ModelPlan::replicated, ModelPlan::tensor, ModelPlan::tensor_sequence,
                                        ModelPlan::context};

std::string_view plan_name(ModelPlan plan);

/// The strategies that `plan` leaves to each node. Requires: `graph` has its strategies.
/// Errors: invalid_argument where an operator lacks the strategy that the plan needs (ranks do not divide a size, or
/// the operator belongs to another model). The message names operator and strategy.
planner::Allowed allowed_strategies(const planner::Graph& graph, ModelPlan plan);

}  // namespace seqtile::models
