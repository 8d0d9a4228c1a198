// planner/compat/compat_rules.cpp -- see compat_rules.h.
// SPDX-License-Identifier: Apache-2.0
#include "planner/compat/compat_rules.h"

#include <algorithm>

#include "planner/compat/compat_costs.h"
#include "planner/strategies/calibrated_strategies.h"

namespace seqtile::planner {
namespace {

/// Costs in multiplies. Launches and optimiser state cost nothing.
CalibratedCosts compat_units() {
  CalibratedCosts costs;
  costs.kernel_time = [](const KernelCall& call) { return KernelTime{call.flops / 2, false}; };
  costs.launch_s = 0;
  costs.state_bytes = 0;
  return costs;
}

bool is_float(const TensorType& type) { return type.dtype.starts_with('f') || type.dtype.starts_with('b'); }

/// The layout without partial sums. Adds the charge for summing them to `communication`; the sums are those of the
/// tensor, or of its gradient.
Layout summed(const Mesh& mesh, const TensorType& type, Layout layout, double& communication) {
  const Layout whole = layout.with_partial(0);
  if (is_float(type))
    communication += compat_all_reduce(mesh, layout.partial(), local_elements(mesh, type.shape, whole));
  return whole;
}

/// Sums the partial sums of all layouts. Returns false if a layout has unequal parts.
bool bring_together(const Mesh& mesh, const std::vector<TensorType>& types, std::vector<Layout>& layouts,
                    double& communication) {
  for (size_t i = 0; i < types.size(); ++i) {
    layouts[i] = summed(mesh, types[i], layouts[i], communication);
    if (!divides(mesh, types[i].shape, layouts[i])) return false;
  }
  return true;
}

}  // namespace

void CompatRules::make() {
  ruled_ = std::make_unique<Graph>(graph_);
  ReshardTables paths(ruled_->mesh);
  CalibratedStrategies made = generate_calibrated_strategies(*ruled_, compat_units(), paths);
  is_known_ = std::move(made.is_known);
}

bool CompatRules::add(size_t node, std::vector<Strategy>& strategies) {
  if (!ruled_) make();
  if (!is_known_[node]) return false;
  const Node& ruled = ruled_->nodes[node];
  for (Strategy strategy : ruled.strategies) {
    bool fits = bring_together(graph_.mesh, ruled.results, strategy.results, strategy.communication);
    for (size_t i = 0; i < strategy.operands.size(); ++i)
      fits = fits && bring_together(graph_.mesh, graph_.nodes[static_cast<size_t>(ruled.inputs[i])].results,
                                    strategy.operands[i], strategy.communication);
    if (!fits) continue;
    strategy.memory = strategy.held();
    strategy.activation = strategy.gradient = 0;
    strategy.kernels = strategy.measured = 0;
    strategies.push_back(std::move(strategy));
  }
  return !strategies.empty();
}

}  // namespace seqtile::planner
