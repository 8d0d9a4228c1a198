// planner/solver/live_spans.h -- the steps during which a device holds an operator's results and gradients.
// SPDX-License-Identifier: Apache-2.0
//
// The steps of a plan are its operators in order and, in training, their backward passes in reverse order. A result is
// held until its last reader has run; in training, until the backward pass of its own operator. The gradient of a
// result is held from the first backward pass that computes a part of it until the backward pass of its operator. The
// gradients of parameters are held from then until the last step.
#pragma once
#include <vector>

#include "planner/graph/graph.h"
#include "planner/graph/problem.h"

namespace seqtile::planner {

struct LiveSpan {
  enum class What { activation, activation_gradient, parameter_gradient } what;
  int node;
  int begin, end;  ///< steps [begin, end)
};

/// Steps of a plan: one for each operator, two in training.
int num_steps(const Graph& graph);
/// The spans of all nodes. A view has no result of its own: the viewed result is held until the view's last reader has
/// run.
std::vector<LiveSpan> live_spans(const Graph& graph);
/// Adds a `Live` to the problem for each span of which some strategy holds bytes, and sets the number of steps.
/// Requires: the problem has the graph's nodes and strategies.
void add_live_spans(const Graph& graph, Problem& problem);

}  // namespace seqtile::planner
