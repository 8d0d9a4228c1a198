// tools/cli/plan/plan_model.cpp -- `seqtile plan model`: makes a graph of operators from a model's config.json.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <charconv>

#include "models/layers/model_graph.h"
#include "planner/graph/graph_json.h"
#include "tools/cli/errors.h"
#include "tools/cli/model_text.h"
#include "tools/cli/output.h"
#include "tools/cli/plan/plan.h"

namespace seqtile::cli {
namespace {

constexpr int kMostDevices = 1 << 20;

}  // namespace

planner::Mesh parse_mesh(const std::string& text) {
  const auto refuse = [&] {
    bad_input(fmt::format("--mesh {}: 1 to {} sizes with x between them, as in 2x4, and at most {} devices in all",
                          text, planner::kMaxAxes, kMostDevices));
  };
  planner::Mesh mesh;
  int64_t devices = 1;
  for (const char *at = text.data(), *end = at + text.size(); at <= end; ++at) {
    int size = 0;
    const auto [stop, error] = std::from_chars(at, end, size);
    if (error != std::errc() || size < 1 || mesh.num_axes == planner::kMaxAxes || (stop != end && *stop != 'x'))
      refuse();
    if ((devices *= size) > kMostDevices) refuse();
    const auto axis = static_cast<size_t>(mesh.num_axes++);
    mesh.shape[axis] = size;
    mesh.alpha[axis] = mesh.beta[axis] = 1;
    at = stop;
  }
  return mesh;
}

void check_devices(const planner::Graph& graph, const PlanOptions& options) {
  const int devices = graph.mesh.devices(graph.mesh.all());
  if (options.devices != 0 && options.devices != devices)
    bad_input(fmt::format("--devices {}: the mesh has {}; their product must be the number of devices", options.devices,
                          devices));
}

models::Model read_model(const PlanOptions& options) {
  models::Model model = read_model_file(options.model, options.strict_model).model;
  if (options.layers > model.layers)
    bad_input(fmt::format("--layers {}: {} has {}; give at most as many", options.layers, options.model,
                          format_counted(model.layers, "layer")));
  return model;
}

void check_graph_file(const PlanOptions& options) {
  if (is_standard_output(options.out))
    bad_input("--output -: the plan goes to standard output; name a file for the graph");
  if (!options.out.empty()) check_can_write("--output", options.out);
}

planner::Graph graph_of_model(const PlanOptions& options) {
  const planner::Graph graph =
      models::model_graph(read_model(options), {.mesh = parse_mesh(options.mesh),
                                                .batch = options.batch,
                                                .length = parse_length("--length", options.length),
                                                .layers = options.layers,
                                                .is_training = options.phase == "training"});
  check_devices(graph, options);
  if (options.out.empty()) return graph;
  const std::string text = planner::graph_json(graph);
  write_file("--output", options.out, options.out.ends_with(".gz") ? planner::compressed(text) : text);
  return graph;
}

}  // namespace seqtile::cli
