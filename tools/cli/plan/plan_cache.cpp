// tools/cli/plan/plan_cache.cpp -- see plan_cache.h.
// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/plan/plan_cache.h"

#include <fmt/format.h>

#include <map>
#include <nlohmann/json.hpp>

#include "cache/plan_store.h"
#include "planner/solver/stored_plan.h"
#include "tools/cli/output.h"

namespace seqtile::cli {
namespace {

/// All inputs of a plan except kernel records, with names and values that people can read.
Json manifest_of(const planner::Graph& graph, const PriceSources& sources, const PlanOptions& options) {
  planner::Mesh mesh = graph.mesh;
  const bool is_calibrated = options.pricing.is_calibrated();
  if (is_calibrated) planner::apply(sources.calibration, mesh);
  const auto of_axes = [&](const auto& values) {
    return Json(std::vector(values.begin(), values.begin() + mesh.num_axes));
  };
  Json json{{"planner", planner::kPlannerVersion}, {"costs", options.pricing.costs},
            {"graph", planner::graph_hash(graph)}, {"phase", graph.is_training ? "training" : "prefill"},
            {"mesh", of_axes(mesh.shape)},         {"alpha", of_axes(mesh.alpha)},
            {"beta", of_axes(mesh.beta)}};
  if (options.memory > 0) json["memory"] = options.memory;
  if (!options.pricing.strategies.empty()) json["strategies"] = options.pricing.strategies;
  if (!is_calibrated) return json;
  json["prices"] = Json::parse(planner::prices_json(sources.calibration));
  if (sources.records) json["records"] = Json::parse(sources.records->environment());
  return json;
}

KeptPlan restored(const cache::StoredPlan& row, const planner::Graph& graph) {
  planner::Planned plan = planner::parse_plan(row.plan_json, graph);
  plan.solution.objective = row.objective;
  plan.solution.lower_bound = row.lower_bound;
  return {{std::move(plan.graph), std::move(plan.problem), std::move(plan.unknown)}, std::move(plan.solution), row.ms};
}

}  // namespace

PlanCache::PlanCache(const planner::Graph& graph, const PriceSources& sources, const PlanOptions& options)
    : path_(tuning_path(options.pricing.records)),
      manifest_(manifest_of(graph, sources, options).dump()),
      records_(sources.records) {
  if (!records_) open_store_of(options.pricing.records, StoreUse::peek);  // throws if the path can be no store
}

std::optional<KeptPlan> PlanCache::find(const planner::Graph& graph) const {
  const auto row = cache::PlanStore::open(path_, cache::OpenMode::read_only)->find(manifest_);
  if (!row) return std::nullopt;
  try {
    const auto used = Json::parse(row->records_json).get<std::map<std::string, std::string>>();
    if (records_ && !records_->still_has(used)) return std::nullopt;
    KeptPlan plan = restored(*row, graph);
    // The alpha and beta of calibrated prices come from the calibration.
    const Json manifest = Json::parse(manifest_);
    for (size_t axis = 0; axis < static_cast<size_t>(graph.mesh.num_axes); ++axis) {
      plan.priced.graph.mesh.alpha[axis] = manifest["alpha"][axis];
      plan.priced.graph.mesh.beta[axis] = manifest["beta"][axis];
    }
    return plan;
  } catch (const std::exception& error) {
    warn(fmt::format("{}: a stored plan cannot be read and is made again: {}", path_, error.what()));
    return std::nullopt;
  }
}

void PlanCache::keep(const KeptPlan& plan) const {
  cache::StoredPlan row;
  row.manifest_json = manifest_;
  row.records_json = Json(records_ ? records_->used() : std::map<std::string, std::string>()).dump();
  row.plan_json = planner::plan_text({plan.priced.graph, plan.priced.problem, plan.priced.unknown, plan.solution});
  row.objective = plan.solution.objective;
  row.lower_bound = plan.solution.lower_bound;
  row.is_exact = plan.solution.is_exact();
  row.ms = plan.ms;
  cache::PlanStore::open(path_, cache::OpenMode::read_write)->publish(row);
}

}  // namespace seqtile::cli
