// tools/cli/plan/plan_pricing.h -- a graph with the prices of its strategies and of every change of layout.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <string>
#include <vector>

#include "planner/graph/node_view.h"
#include "planner/solver/solver.h"
#include "planner/strategies/calibration.h"
#include "tools/cli/options.h"
#include "tools/cli/plan/recorded_kernels.h"

namespace seqtile::cli {

struct PricingOptions {
  std::string costs = "compat";   ///< or "calibrated"
  std::string calibration;        ///< a file; empty: defaults
  Options records;                ///< --cache, and, of calibrated prices, --device (empty: this machine) and --threads
  bool has_memory_limit = false;  ///< calibrated: parameters may be kept in parts
  std::string strategies;         ///< compat: "file" or "own"; empty: the file's where it has them

  bool is_calibrated() const { return costs == "calibrated"; }
};

void add_pricing_options(CLI::App& command, PricingOptions& options);
/// Of a graph in a file.
void add_strategies_choice(CLI::App& command, PricingOptions& options);

struct Priced {
  planner::Graph graph;
  planner::Problem problem;
  planner::UnknownOperators unknown;
};

/// What prices are made of beside the graph, read once.
struct PriceSources {
  planner::Calibration calibration = {};
  std::shared_ptr<RecordedKernels> records = nullptr;  ///< null where there is no --cache, or the prices are compat
};
/// Errors: bad input (options that do not go together, a calibration of another machine), and those of the files.
PriceSources read_sources(const autotune::Registry& registry, const PricingOptions& options);
/// Of a file, empty: the defaults. Errors: as planner::read_calibration(), and where it was measured on another machine
/// than `records` name.
planner::Calibration calibration_of(const std::string& file, const Options& records);

/// `name` of the graph is for messages. Errors: bad input (strategies of some nodes, a calibration of another mesh).
Priced price(const PriceSources& sources, planner::Graph graph, const std::string& name, const PricingOptions& options);

/// What a plan's sum is made of. Of calibrated costs in seconds.
struct CostParts {
  double compute = 0, communication = 0, resharding = 0;
  int kernels = 0, measured = 0;  ///< times of kernels, forward and backward; those of them from records
};
CostParts parts_of(const Priced& priced, const planner::Solution& solution);

/// What is worth a warning: operators that are unknown, and prices that are not of the graph's phase.
std::vector<std::string> warnings_of(const Priced& priced, const PricingOptions& options);

}  // namespace seqtile::cli
