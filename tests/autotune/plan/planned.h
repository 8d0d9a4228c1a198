// tests/autotune/plan/planned.h -- graphs with their best plans in seconds.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <catch2/catch.hpp>

#include <functional>
#include <stdexcept>

#include "autotune/plan/calibrated_problem.h"
#include "autotune/plan/solver.h"

namespace seqtile::testing {

/// A graph with its prices and its best plan.
struct Planned {
  plan::Graph graph;
  plan::CalibratedStrategies strategies;
  plan::Problem problem;
  plan::Solution solution;

  const std::string& chosen(const std::string& node) const {
    for (size_t i = 0; i < graph.nodes.size(); ++i)
      if (graph.nodes[i].name == node) return graph.nodes[i].strategies[static_cast<size_t>(solution.choices[i])].name;
    throw std::out_of_range("no node " + node);
  }
};

using Keep = std::function<bool(const plan::Node&, const plan::Strategy&)>;

/// Whether a collective is within the kernel.
inline bool is_fused(const plan::Strategy& strategy) {
  return strategy.name.find("gather") != std::string::npos || strategy.name.find("scatter") != std::string::npos ||
         strategy.name.find("exchanged") != std::string::npos;
}

inline Planned make_plan(plan::Graph graph, const plan::CalibratedCosts& costs, const Keep& keep = {}) {
  Planned planned{std::move(graph), {}, {}, {}};
  plan::ReshardTables paths(planned.graph.mesh);
  planned.strategies = plan::generate_calibrated_strategies(planned.graph, costs, paths);
  if (keep)
    for (plan::Node& node : planned.graph.nodes) {
      std::erase_if(node.strategies, [&](const plan::Strategy& strategy) { return !keep(node, strategy); });
      REQUIRE(!node.strategies.empty());
    }
  planned.problem = plan::calibrated_problem(planned.graph, planned.strategies, costs, paths);
  planned.solution = plan::solve(planned.problem);
  CHECK(planned.solution.is_exact());
  return planned;
}

inline bool is_unfused(const plan::Node&, const plan::Strategy& strategy) { return !is_fused(strategy); }

/// Of so many bytes, by a ring.
inline double all_reduce(const plan::Mesh& mesh, int axis, double bytes) {
  const auto a = static_cast<size_t>(axis);
  const double n = mesh.shape[a];
  return 2 * (n - 1) * mesh.alpha[a] + 2 * (n - 1) / n * bytes * mesh.beta[a];
}

}  // namespace seqtile::testing
