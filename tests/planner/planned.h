// tests/planner/planned.h -- graphs with their best plans in seconds.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <catch2/catch.hpp>

#include <functional>
#include <stdexcept>

#include "planner/solver/calibrated_problem.h"
#include "planner/solver/solver.h"

namespace seqtile::testing {

/// A graph with its prices and its best plan.
struct Planned {
  planner::Graph graph;
  planner::CalibratedStrategies strategies;
  planner::Problem problem;
  planner::Solution solution;

  const std::string& chosen(const std::string& node) const {
    for (size_t i = 0; i < graph.nodes.size(); ++i)
      if (graph.nodes[i].name == node) return graph.nodes[i].strategies[static_cast<size_t>(solution.choices[i])].name;
    throw std::out_of_range("no node " + node);
  }
};

using Keep = std::function<bool(const planner::Node&, const planner::Strategy&)>;

/// True if the kernel includes a collective.
inline bool is_fused(const planner::Strategy& strategy) {
  return strategy.name.find("gather") != std::string::npos || strategy.name.find("scatter") != std::string::npos ||
         strategy.name.find("exchanged") != std::string::npos;
}

inline Planned make_plan(planner::Graph graph, const planner::CalibratedCosts& costs, const Keep& keep = {}) {
  Planned planned{std::move(graph), {}, {}, {}};
  planner::ReshardTables paths(planned.graph.mesh);
  planned.strategies = planner::generate_calibrated_strategies(planned.graph, costs, paths);
  if (keep)
    for (planner::Node& node : planned.graph.nodes) {
      std::erase_if(node.strategies, [&](const planner::Strategy& strategy) { return !keep(node, strategy); });
      REQUIRE(!node.strategies.empty());
    }
  planned.problem = planner::calibrated_problem(planned.graph, planned.strategies, costs, paths);
  planned.solution = planner::solve(planned.problem);
  CHECK(planned.solution.is_exact());
  return planned;
}

inline bool is_unfused(const planner::Node&, const planner::Strategy& strategy) { return !is_fused(strategy); }

/// Seconds of an all-reduce of `bytes` by a ring.
inline double all_reduce(const planner::Mesh& mesh, int axis, double bytes) {
  const auto a = static_cast<size_t>(axis);
  const double n = mesh.shape[a];
  return 2 * (n - 1) * mesh.alpha[a] + 2 * (n - 1) / n * bytes * mesh.beta[a];
}

}  // namespace seqtile::testing
