// tools/cli/plan/plan_comm.cpp -- `seqtile plan comm`: the cost of nine ways to sum a model's gradients over a mesh.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "planner/strategies/traffic_advice.h"
#include "tools/cli/errors.h"
#include "tools/cli/model_text.h"
#include "tools/cli/output.h"
#include "tools/cli/plan/plan.h"

namespace seqtile::cli {
namespace {

std::string bucket_text(const planner::TrafficCost& cost) {
  return fmt::format("{} of {}", cost.buckets, format_bytes(cost.bucket_bytes));
}

void print_ways(const planner::TrafficAdvice& advice) {
  Table table({"", "way", "sent", "traffic", "exchange", "until summed", "memory", "buckets"});
  const auto add = [&](const std::string& number, const planner::PricedWay& way) {
    const std::string owner = way.way.is_of_framework() ? " (the framework's)" : "";
    table.add({number, planner::describe(way.way) + owner, format_bytes(way.cost.bytes),
               fmt::format("{:.3g}", way.cost.bytes / advice.ways.front().cost.bytes),
               format_us(way.cost.communication_s * 1e6), format_us(way.cost.seconds * 1e6),
               format_bytes(way.cost.memory), bucket_text(way.cost)});
  };
  for (const planner::PricedWay& way : advice.ways) add(std::to_string(way.number), way);
  add("best", advice.best);
  add("lossy", advice.best_lossy);
  table.print();
}

Json way_json(const planner::PricedWay& way, const planner::TrafficAdvice& advice) {
  return {{"number", way.number},
          {"way", planner::describe(way.way)},
          {"bytes", way.cost.bytes},
          {"traffic", way.cost.bytes / advice.ways.front().cost.bytes},
          {"communication_s", way.cost.communication_s},
          {"seconds", way.cost.seconds},
          {"memory", way.cost.memory},
          {"bucket_bytes", way.cost.bucket_bytes},
          {"buckets", way.cost.buckets},
          {"exact", way.way.is_exact()},
          {"framework", way.way.is_of_framework()}};
}

}  // namespace

void add_comm_flags(CLI::App& command, PlanOptions& options) {
  command.add_option("--model", options.model, "A Hugging Face config.json")->type_name("FILE")->required();
  command.add_option("--mesh", options.mesh, "Devices of each axis, as in 2x4: each has a part of the batch")
      ->type_name("SIZES")
      ->required();
  command.add_option("--length", options.length, "Tokens of a sequence (default: 4096)")->type_name("N");
  command.add_option("--batch", options.batch, "Sequences of each device (default: 1)")
      ->type_name("N")
      ->check(at_least_one());
  CLI::Option& calibration = *command.add_option("--calibration", options.pricing.calibration,
                                                 "JSON of links and device (docs/plan_format.md)");
  calibration.type_name("FILE");
  options.pricing.records.device.clear();
  command
      .add_option("--device", options.pricing.records.device, "Device of the calibration (default: cpu, this machine)")
      ->type_name("NAME")
      ->needs(&calibration);
}

int run_comm(const Session&, const PlanOptions& given) {
  PlanOptions options = given;
  models::ModelFile file = read_model_file(options.model, options.strict_model);
  warn_of_lengths(file, "--length", options.length);
  if (options.length.empty()) options.length = "4096";
  const planner::Calibration calibration = calibration_of(options.pricing.calibration, options.pricing.records);
  const planner::Graph graph = graph_of_model(options);
  planner::Mesh mesh = graph.mesh;
  planner::apply(calibration, mesh);
  const int devices = mesh.devices(mesh.all());
  if (devices < 2) bad_input(fmt::format("--mesh {}: one device sends no gradients; give two or more", options.mesh));
  const planner::TrafficAdvice advice = planner::advise(planner::gradients_of(graph, calibration), mesh, calibration);
  print_ways(advice);
  print_line(fmt::format(
      "{} of gradients on each of {} devices; a backward pass of {}; kernels and links "
      "take {:.3g} times as long while both are busy",
      format_bytes(advice.gradient_bytes), devices, format_us(advice.backward_s * 1e6), calibration.overlap_slowdown));
  print_line("best: " + advice.why);
  if (!options.json) return kDone;
  Json ways = Json::array();
  for (const planner::PricedWay& way : advice.ways) ways.push_back(way_json(way, advice));
  print_json({{"devices", devices},
              {"gradient_bytes", advice.gradient_bytes},
              {"backward_s", advice.backward_s},
              {"overlap_slowdown", calibration.overlap_slowdown},
              {"ways", std::move(ways)},
              {"best", way_json(advice.best, advice)},
              {"best_lossy", way_json(advice.best_lossy, advice)},
              {"why", advice.why}});
  return kDone;
}

}  // namespace seqtile::cli
