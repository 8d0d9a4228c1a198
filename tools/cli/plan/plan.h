// tools/cli/plan/plan.h -- options and functions that the parts of `seqtile plan` share.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <string>

#include "seqtile/model.h"
#include "tools/cli/command.h"
#include "tools/cli/plan/plan_pricing.h"

namespace seqtile::cli {

/// Sizes of a decoder layer.
struct BlockSizes {
  int64_t hidden = 1024, heads = 16, kv_heads = 4, intermediate = 2816;
};

/// Options of `seqtile plan run`.
struct RunOptions {
  BlockSizes sizes;
  std::string dtype = "f32";
  int ranks = 2, rounds = 11;
  bool operators = false;
};

struct PlanOptions {
  std::string file, node;
  double memory = 0;  ///< bytes of a device; 0: no limit
  PricingOptions pricing;
  std::string format = "table";
  int64_t devices = 0;  ///< 0: as many as the mesh has
  std::string model, mesh, length, phase = "training", out;
  bool strict_model = false;
  std::string described;          ///< JSON of the facts understood from the model's file
  int64_t batch = 1, layers = 0;  ///< 0: all layers of the model
  RunOptions run;
  bool json = false;
};

/// Parses "2x4". Sending costs one unit a message and one an element until a calibration is applied. Errors: bad input.
planner::Mesh parse_mesh(const std::string& text);
/// Reads --model. Errors: bad input, also if the model has fewer layers than --layers.
models::Model read_model(const PlanOptions& options);
/// Refuses a --output for the graph before the model is read. Errors: as check_can_write(); bad input for "-".
void check_graph_file(const PlanOptions& options);
/// Makes the graph of --model, and writes it to --output if that is given. Errors: bad input, with the flag.
planner::Graph graph_of_model(const PlanOptions& options);
/// Errors: bad input if --devices differs from the number of devices in the mesh.
void check_devices(const planner::Graph& graph, const PlanOptions& options);

// `seqtile plan comm`. Errors: bad input for one device, and for a calibration of another mesh.
void add_comm_flags(CLI::App& command, PlanOptions& options);
int run_comm(const Session& session, const PlanOptions& options);

// `seqtile plan calibrate`. Errors: bad input; io where the output cannot be written.
void add_calibrate_flags(CLI::App& command, PlanOptions& options);
int run_calibrate(const Session& session, const PlanOptions& options);

// `seqtile plan run`. Returns kNo if the measured order of plans differs from the predicted one. Errors: bad input;
// as race_plans().
void add_run_flags(CLI::App& command, PlanOptions& options);
int run_run(const Session& session, const PlanOptions& options);

// Texts of a plan. Requires: the solution is feasible.
/// A Graphviz graph: operators with their strategies, and the cost of each change of layout.
std::string plan_dot(const Priced& priced, const planner::Solution& solution);
/// Python code: the placements of parameters and activations by name, one for each axis of the mesh.
std::string plan_dtensor(const Priced& priced, const planner::Solution& solution);
/// A self-contained page of HTML: costs by operator, memory over time, and a table that can be searched.
std::string plan_page(const Priced& priced, const planner::Solution& solution);

}  // namespace seqtile::cli
