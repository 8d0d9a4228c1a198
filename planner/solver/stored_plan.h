// planner/solver/stored_plan.h -- a plan as a self-contained text: the chosen strategies and their costs.
// SPDX-License-Identifier: Apache-2.0
//
// The graph and this text suffice to report everything about the plan: the text has the strategy of each operator with
// its layouts and costs, and the cost of each change of layout. Numbers are restored bit for bit.
#pragma once
#include <string>

#include "planner/graph/node_view.h"
#include "planner/solver/solver.h"

namespace seqtile::planner {

/// Raise it when the same graph and prices can give another plan, or when the form of the text changes.
inline constexpr int kPlannerVersion = 3;

/// SHA-256 of everything that plans depend on: mesh, phase, nodes, and the strategies if the graph has them.
std::string graph_hash(const Graph& graph);

struct Planned {
  Graph graph;  ///< after parse_plan() every node has one strategy, the chosen one
  Problem problem;
  UnknownOperators unknown;
  Solution solution;
};
/// The plan as JSON on one line, in ASCII, without objective and lower bound. Requires: the solution is feasible.
std::string plan_text(const Planned& plan);
/// Restores the plan that plan_text() wrote for this graph.
/// Errors: invalid_argument if the text has another form or belongs to another graph.
Planned parse_plan(const std::string& text, Graph graph);

}  // namespace seqtile::planner
