// planner/solver/live_spans.h -- when a device holds what an operator leaves.
// SPDX-License-Identifier: Apache-2.0
//
// A plan's steps are its operators in order, and in training then their backward passes, the last one first. Results
// are held until the last operator that reads them has run, in training until the backward pass of the one that has
// made them; their gradients from the first backward pass that computes a part of them on; those of parameters stay.
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

int num_steps(const Graph& graph);
/// A view has nothing of its own: what it views is held for who reads the view.
std::vector<LiveSpan> live_spans(const Graph& graph);
/// Adds what the strategies of the graph hold for a while. Requires: the problem has the graph's nodes and strategies.
void add_live_spans(const Graph& graph, Problem& problem);

}  // namespace seqtile::planner
