// planner/solver/stored_plan.h -- a plan as a text that stands by itself: the chosen strategies and what they cost.
// SPDX-License-Identifier: Apache-2.0
//
// Of a graph, its plan and nothing else, all that is told of a plan can be told: the text has each operator's strategy
// with its layouts and costs, and each change of layout with its cost. Numbers come back bit for bit.
#pragma once
#include <string>

#include "planner/graph/node_view.h"
#include "planner/solver/solver.h"

namespace seqtile::planner {

/// Raise it where the same graph and prices may give another plan, or the text has another form.
inline constexpr int kPlannerVersion = 3;

/// SHA-256 of all that plans depend on: mesh, phase, nodes and, where there are some, their strategies.
std::string graph_hash(const Graph& graph);

struct Planned {
  Graph graph;  ///< of one that was read, every node has one strategy: the chosen one
  Problem problem;
  UnknownOperators unknown;
  Solution solution;
};
/// JSON on one line, in ASCII; without objective and lower bound. Requires: the solution is feasible.
std::string plan_text(const Planned& plan);
/// What plan_text() has made of this graph. Errors: invalid_argument (another text, another graph's).
Planned parse_plan(const std::string& text, Graph graph);

}  // namespace seqtile::planner
