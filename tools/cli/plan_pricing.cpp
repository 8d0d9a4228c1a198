// tools/cli/plan_pricing.cpp -- see plan_pricing.h.
// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/plan_pricing.h"

#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>

#include "autotune/plan/calibrated_problem.h"
#include "autotune/plan/calibration.h"
#include "autotune/plan/compat_problem.h"
#include "autotune/plan/compat_strategies.h"
#include "autotune/plan/plan_costs.h"
#include "tools/cli/command.h"
#include "tools/cli/output.h"
#include "tools/cli/recorded_kernels.h"

namespace seqtile::cli {
namespace {

/// Whether the strategies are made here. Errors: bad input where the file has some, but not of all nodes.
bool makes_strategies(const plan::Graph& graph, const std::string& name, const PricingOptions& options) {
  if (options.strategies == "own") return true;
  const auto first = std::ranges::find_if(graph.nodes, [](const plan::Node& node) { return node.strategies.empty(); });
  if (first == graph.nodes.end()) return false;
  const bool has_none =
      std::ranges::all_of(graph.nodes, [](const plan::Node& node) { return node.strategies.empty(); });
  if (has_none && options.strategies.empty()) return true;
  bad_input(
      fmt::format("{}: node {} has no \"strategies\"; --strategies own makes those of all nodes", name, first->name));
}

Priced price_calibrated(const autotune::Registry& registry, plan::Graph graph, const PricingOptions& options) {
  if (options.strategies == "file")
    bad_input("--strategies file has no prices in seconds: --costs calibrated makes strategies of its own");
  const plan::Calibration calibration =
      options.calibration.empty() ? plan::Calibration{} : plan::read_calibration(options.calibration);
  Priced priced{std::move(graph), {}, {}};
  plan::apply(calibration, priced.graph.mesh);
  plan::CalibratedCosts costs = plan::costs_of(calibration, priced.graph.is_training);
  costs.cuts_parameters = options.has_budget;
  if (!options.records.cache.empty())
    costs.kernel_time = recorded_kernel_times(registry, options.records, std::move(costs.kernel_time));
  plan::ReshardTables paths(priced.graph.mesh);
  plan::CalibratedStrategies strategies = plan::generate_calibrated_strategies(priced.graph, costs, paths);
  priced.problem = plan::calibrated_problem(priced.graph, strategies, costs, paths);
  priced.unknown = std::move(strategies.unknown);
  return priced;
}

}  // namespace

void add_pricing_options(CLI::App& command, PricingOptions& options) {
  command
      .add_option("--costs", options.costs,
                  "compat: the known planner's; calibrated: seconds, cheapest paths (docs/planner.md)")
      ->check(CLI::IsMember({"compat", "calibrated"}))
      ->capture_default_str();
  command.add_option("--calibration", options.calibration,
                     "JSON of links and device for --costs calibrated (docs/plan_format.md)");
  CLI::Option& cache = *command.add_option(
      "--cache", options.records.cache,
      "With --costs calibrated: tuning.db with measured times (default: a roofline for all operators)");
  cache.type_name("FILE");
  command.add_option("--device", options.records.device, "With --cache: whose times they are")
      ->type_name("NAME")
      ->capture_default_str()
      ->needs(&cache);
  command.add_option("--threads", options.records.threads, "With --cache: threads of one launch (default: all cores)")
      ->type_name("N")
      ->needs(&cache);
}

void add_strategies_choice(CLI::App& command, PricingOptions& options) {
  command
      .add_option("--strategies", options.strategies,
                  "file: those in the file; own: made here (default: the file's where it has them)")
      ->check(CLI::IsMember({"file", "own"}));
}

Priced price(const autotune::Registry& registry, plan::Graph graph, const std::string& name,
             const PricingOptions& options) {
  if (options.is_calibrated()) return price_calibrated(registry, std::move(graph), options);
  if (!options.calibration.empty() || !options.records.cache.empty())
    bad_input("--calibration and --cache are for --costs calibrated");
  const bool makes = makes_strategies(graph, name, options);
  Priced priced{std::move(graph), {}, {}};
  if (makes) priced.unknown = plan::generate_compat_strategies(priced.graph);
  priced.problem = plan::compat_problem(priced.graph);
  return priced;
}

CostParts parts_of(const Priced& priced, const plan::Solution& solution) {
  CostParts parts;
  for (const plan::OperatorCost& cost : plan::operator_costs(priced.graph, priced.problem, solution.choices)) {
    parts.compute += cost.compute;
    parts.communication += cost.communication;
    parts.resharding += cost.reshard;
  }
  for (size_t node = 0; node < priced.graph.nodes.size(); ++node) {
    const auto choice = static_cast<size_t>(solution.choices[node]);
    const plan::Strategy& strategy = priced.graph.nodes[node].strategies[choice];
    parts.kernels += strategy.kernels;
    parts.measured += strategy.measured;
  }
  return parts;
}

std::string warning_of(const Priced& priced) {
  if (priced.unknown.empty()) return {};
  return fmt::format("kept whole on every device, as no way to cut them is known: {}",
                     fmt::join(priced.unknown, ", "));
}

}  // namespace seqtile::cli
