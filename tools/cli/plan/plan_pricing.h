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
  std::string costs = "compat";  ///< "compat" or "calibrated"
  std::string calibration;       ///< path of a file; empty: defaults
  /// --cache; for calibrated prices also --device (empty: this machine) and --threads.
  Options records;
  bool has_memory_limit = false;  ///< calibrated: parameters may be cut over devices
  std::string strategies;         ///< compat: "file" or "own"; empty: the file's, if it has strategies

  bool is_calibrated() const { return costs == "calibrated"; }
};

void add_pricing_options(CLI::App& command, PricingOptions& options);
/// Adds --strategies, for a graph in a file.
void add_strategies_choice(CLI::App& command, PricingOptions& options);

struct Priced {
  planner::Graph graph;
  planner::Problem problem;
  planner::UnknownOperators unknown;
};

/// All inputs of prices except the graph, read once.
struct PriceSources {
  planner::Calibration calibration = {};
  std::shared_ptr<RecordedKernels> records = nullptr;  ///< null without --cache and for compat prices
};
/// Errors: bad input for options that exclude each other and for a calibration of another machine; as the readers.
PriceSources read_sources(const autotune::Registry& registry, const PricingOptions& options);
/// Reads a calibration; without a file returns the defaults. Errors: as planner::read_calibration(); bad
/// input for a calibration of another machine than the machine of `records`.
planner::Calibration calibration_of(const std::string& file, const Options& records);

/// `name` is for messages. Errors: bad input for strategies of some nodes only and for a calibration of another mesh.
Priced price(const PriceSources& sources, planner::Graph graph, const std::string& name, const PricingOptions& options);

/// The parts of a plan's calibrated cost, in seconds.
struct CostParts {
  double compute = 0, communication = 0, resharding = 0;
  int kernels = 0, measured = 0;  ///< kernel times of both passes, and the part from records
};
CostParts parts_of(const Priced& priced, const planner::Solution& solution);

/// Warnings of a plan: unknown operators, and prices of another phase than the graph's.
std::vector<std::string> warnings_of(const Priced& priced, const PricingOptions& options);

}  // namespace seqtile::cli
