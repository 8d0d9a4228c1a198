// models/layers/model_plans.cpp -- see model_plans.h.
// SPDX-License-Identifier: Apache-2.0
#include "models/layers/model_plans.h"

#include <fmt/format.h>

#include <string>

#include "jit/base/counted.h"
#include "planner/graph/node_view.h"
#include "seqtile/error.h"

namespace seqtile::models {
namespace {

/// The strategies of a plan, by kind of operator.
struct Names {
  std::string_view plan, rows, into_block, out_of_block, in_block, attention, gate;
};

constexpr Names kNames[] = {
    {"replicated", "whole", "whole", "whole", "whole", "whole", "whole"},
    {"tensor parallel", "whole", "S0 n", "S0 k", "S0 dim 2", "S0 heads", "S0 n"},
    {"tensor and sequence parallel", "S0 dim 1", "S0 n of gathered rows", "S0 k to scattered rows", "S0 dim 2",
     "S0 heads", "S0 n"},
    {"context parallel", "S0 dim 1", "S0 rows", "S0 rows", "S0 dim 1", "S0 length with gathered keys", "S0 dim 1"},
};

const Names& names_of(ModelPlan plan) { return kNames[static_cast<size_t>(plan)]; }

/// The strategy that the plan needs. Empty for views: they cost nothing and follow their neighbours.
std::string_view strategy_of(const planner::Node& node, const Names& names) {
  if (planner::is_view(node)) return {};
  const std::string name = planner::operator_name(node);
  if (name == "Linear")
    return node.target.ends_with(".o_proj") || node.target.ends_with(".down_proj") || node.target.ends_with(".c_proj")
               ? names.out_of_block
               : names.into_block;
  const bool has_heads = !node.results.empty() && node.results.front().shape.size() == 4;
  if (name == "rotary" || name == "gelu" || name == "silu" || (name == "RMSNorm" && has_heads)) return names.in_block;
  if (name == "attention") return names.attention;
  if (name.ends_with("_and_mul")) return names.gate;
  return names.rows;
}

}  // namespace

std::string_view plan_name(ModelPlan plan) { return names_of(plan).plan; }

planner::Allowed allowed_strategies(const planner::Graph& graph, ModelPlan plan) {
  const Names& names = names_of(plan);
  planner::Allowed allowed;
  for (const planner::Node& node : graph.nodes) {
    const std::string_view wanted = strategy_of(node, names);
    std::vector<int>& left = allowed.emplace_back();
    for (size_t i = 0; i < node.strategies.size(); ++i)
      if (wanted.empty() || node.strategies[i].name == wanted) left.push_back(static_cast<int>(i));
    if (left.empty())
      throw Error(ErrorCode::invalid_argument,
                  fmt::format("{} over {}: {} cannot be shared as \"{}\"; ranks must divide heads, KV heads and "
                              "the intermediate size, and be no more than there are tokens",
                              names.plan, counted(graph.mesh.devices(graph.mesh.all()), "rank"), node.name, wanted));
  }
  return allowed;
}

}  // namespace seqtile::models
