// tools/cli/plan/plan_pricing.cpp -- see plan_pricing.h.
// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/plan/plan_pricing.h"

#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>

#include "autotune/keys.h"
#include "planner/compat/compat_problem.h"
#include "planner/compat/compat_strategies.h"
#include "planner/solver/calibrated_problem.h"
#include "planner/solver/plan_costs.h"
#include "tools/cli/errors.h"
#include "tools/cli/output.h"

namespace seqtile::cli {
namespace {

/// True if the planner makes the strategies. Errors: bad input if the file has strategies of some nodes only.
bool makes_strategies(const planner::Graph& graph, const std::string& name, const PricingOptions& options) {
  if (options.strategies == "own") return true;
  const auto first =
      std::ranges::find_if(graph.nodes, [](const planner::Node& node) { return node.strategies.empty(); });
  if (first == graph.nodes.end()) return false;
  const bool has_none =
      std::ranges::all_of(graph.nodes, [](const planner::Node& node) { return node.strategies.empty(); });
  if (has_none && options.strategies.empty()) return true;
  bad_input(
      fmt::format("{}: node {} has no \"strategies\"; --strategies own makes those of all nodes", name, first->name));
}

/// Refuses flags that would have no effect.
void check_options(const PricingOptions& options) {
  const Options& records = options.records;
  if (!records.device.empty() && records.cache.empty() && options.calibration.empty())
    bad_input("--device requires --cache or --calibration: it names their device");
  if (options.is_calibrated() && options.strategies == "file")
    bad_input("--strategies file has no prices in seconds: --costs calibrated makes strategies of its own");
  if (options.is_calibrated()) return;
  for (const auto& [flag, value] : {std::pair("--calibration", options.calibration),
                                    std::pair("--device", records.device), std::pair("--threads", records.threads)})
    if (!value.empty())
      bad_input(fmt::format("{} {}: it is for --costs calibrated; add that, or leave {} out", flag, value, flag));
}

/// The default device is this machine's CPU.
Options with_device(Options records) {
  if (records.device.empty()) records.device = "cpu";
  return records;
}

/// The default of --threads is the thread count of the measured ranks. On GPUs the host's threads do not count.
Options with_threads(Options records, const std::optional<planner::Measured>& measured) {
  if (records.threads.empty() && measured && records.device == "cpu")
    records.threads = std::to_string(measured->threads);
  return records;
}

/// Refuses kernel times with other threads than the ranks of the calibration.
void check_threads(const planner::Measured& measured, const Options& given, const std::string& file) {
  const Options records = with_device(given);
  if (records.threads.empty() || records.device != "cpu" || one_thread_count(records) == measured.threads) return;
  bad_input(
      fmt::format("{}: measured on ranks of {}, kernel times are wanted of {}; `seqtile plan calibrate "
                  "--threads {}` measures such ranks",
                  file, format_counted(measured.threads, "thread"), records.threads, records.threads));
}

Priced price_calibrated(const PriceSources& sources, planner::Graph graph, const PricingOptions& options) {
  Priced priced{std::move(graph), {}, {}};
  planner::apply(sources.calibration, priced.graph.mesh);
  planner::CalibratedCosts costs = planner::costs_of(sources.calibration, priced.graph.is_training);
  costs.cuts_parameters = options.has_memory_limit;
  if (sources.records) costs.kernel_time = recorded_kernel_times(sources.records, std::move(costs.kernel_time));
  planner::ReshardTables paths(priced.graph.mesh);
  planner::CalibratedStrategies strategies = planner::generate_calibrated_strategies(priced.graph, costs, paths);
  priced.problem = planner::calibrated_problem(priced.graph, strategies, costs, paths);
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
      "tuning.db: a plan is kept there and found again; with --costs calibrated also measured times (default: a "
      "roofline for all operators)");
  cache.type_name("FILE");
  options.records.device.clear();
  command
      .add_option("--device", options.records.device,
                  "Device of the calibration and of the times in --cache (default: cpu, this machine)")
      ->type_name("NAME");
  command
      .add_option("--threads", options.records.threads,
                  "With --cache: threads of one launch (default: the calibration's threads, else all cores)")
      ->type_name("N")
      ->needs(&cache);
}

void add_strategies_choice(CLI::App& command, PricingOptions& options) {
  command
      .add_option(
          "--strategies", options.strategies,
          "file: strategies of the file; own: strategies of the planner (default: the file's, if it has strategies)")
      ->check(CLI::IsMember({"file", "own"}));
}

planner::Calibration calibration_of(const std::string& file, const Options& given) {
  if (file.empty()) return {};
  const planner::Calibration calibration = planner::read_calibration(file);
  const Options records = with_device(given);
  if (!calibration.measured) {  // prices without a machine suit any device, but a mistyped device is an error
    if (!given.device.empty()) open_device_of(records, 1);
    return calibration;
  }
  const auto device = open_device_of(records, one_thread_count(records));
  planner::check_machine(calibration, autotune::machine_of(device->info()), file);
  check_threads(*calibration.measured, given, file);
  return calibration;
}

PriceSources read_sources(const autotune::Registry& registry, const PricingOptions& options) {
  check_options(options);
  if (!options.is_calibrated()) return {};
  PriceSources sources{calibration_of(options.calibration, options.records)};
  if (!options.records.cache.empty())
    sources.records = std::make_shared<RecordedKernels>(
        registry, with_threads(with_device(options.records), sources.calibration.measured));
  return sources;
}

Priced price(const PriceSources& sources, planner::Graph graph, const std::string& name,
             const PricingOptions& options) {
  if (options.is_calibrated()) return price_calibrated(sources, std::move(graph), options);
  const bool makes = makes_strategies(graph, name, options);
  Priced priced{std::move(graph), {}, {}};
  if (makes) priced.unknown = planner::generate_compat_strategies(priced.graph);
  priced.problem = planner::compat_problem(priced.graph);
  return priced;
}

CostParts parts_of(const Priced& priced, const planner::Solution& solution) {
  CostParts parts;
  for (const planner::OperatorCost& cost : planner::operator_costs(priced.graph, priced.problem, solution.choices)) {
    parts.compute += cost.compute;
    parts.communication += cost.communication;
    parts.resharding += cost.reshard;
  }
  for (size_t node = 0; node < priced.graph.nodes.size(); ++node) {
    const auto choice = static_cast<size_t>(solution.choices[node]);
    const planner::Strategy& strategy = priced.graph.nodes[node].strategies[choice];
    parts.kernels += strategy.kernels;
    parts.measured += strategy.measured;
  }
  return parts;
}

std::vector<std::string> warnings_of(const Priced& priced, const PricingOptions& options) {
  std::vector<std::string> warnings;
  const bool is_compat = !options.is_calibrated();
  if (!priced.unknown.empty())
    warnings.push_back("kept whole on every device, as no way to cut them is known: " + priced.unknown.text());
  if (is_compat && !priced.graph.is_training)
    warnings.push_back(
        "--costs compat prices a forward and a backward pass, whatever the phase; --costs calibrated prices a prefill");
  return warnings;
}

}  // namespace seqtile::cli
