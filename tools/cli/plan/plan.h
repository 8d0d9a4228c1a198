// tools/cli/plan/plan.h -- what the parts of `seqtile plan` share.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <string>

#include "models/file/model.h"
#include "tools/cli/command.h"
#include "tools/cli/plan/plan_pricing.h"

namespace seqtile::cli {

/// Of a decoder layer.
struct BlockSizes {
  int64_t hidden = 1024, heads = 16, kv_heads = 4, intermediate = 2816;
};

/// Of `seqtile plan run`.
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
  std::string described;          ///< JSON of what was understood of the model's file
  int64_t batch = 1, layers = 0;  ///< 0: the model's
  RunOptions run;
  bool json = false;
};

/// "2x4". What sending costs is one unit a message and one an element, until it is measured. Errors: bad input.
planner::Mesh parse_mesh(const std::string& text);
/// --model. Errors: bad input, also where it has fewer than --layers.
models::Model read_model(const PlanOptions& options);
/// The graph of --model, written to --output where that is given. Errors: bad input, with the flag.
planner::Graph graph_of_model(const PlanOptions& options);
/// Errors: bad input where --devices are not as many as the mesh has.
void check_devices(const planner::Graph& graph, const PlanOptions& options);

// `seqtile plan comm`. Errors: bad input for one device, and for a calibration of another mesh.
void add_comm_flags(CLI::App& command, PlanOptions& options);
int run_comm(const Session& session, const PlanOptions& options);

// `seqtile plan calibrate`. Errors: bad input; io where the output cannot be written.
void add_calibrate_flags(CLI::App& command, PlanOptions& options);
int run_calibrate(const Session& session, const PlanOptions& options);

// `seqtile plan run`: kNo where plans are not as fast, one against the other, as was predicted. Errors: bad input, and
// as race_plans().
void add_run_flags(CLI::App& command, PlanOptions& options);
int run_run(const Session& session, const PlanOptions& options);

// A plan as a text. Requires: the solution is feasible.
/// A graph of Graphviz: operators with their strategies, and what each change of layout costs.
std::string plan_dot(const Priced& priced, const planner::Solution& solution);
/// Python: by name the placements of parameters and activations, one for each axis of the mesh.
std::string plan_dtensor(const Priced& priced, const planner::Solution& solution);
/// One page of HTML that needs nothing else: costs by operator, memory over time, a table that can be searched.
std::string plan_page(const Priced& priced, const planner::Solution& solution);

}  // namespace seqtile::cli
