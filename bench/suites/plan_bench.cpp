// bench/suites/plan_bench.cpp -- the time from a parsed graph to its plan, on one thread.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <chrono>
#include <cmath>

#include "bench/suites.h"
#include "models/file/model_file.h"
#include "models/layers/model_graph.h"
#include "planner/compat/compat_problem.h"
#include "planner/compat/compat_strategies.h"
#include "planner/graph/graph_json.h"
#include "planner/solver/calibrated_problem.h"
#include "planner/solver/solver.h"
#include "planner/strategies/calibration.h"

namespace seqtile::bench {
namespace {

constexpr int kCalls = 20;

struct Model {
  const char *name, *file;
  bool has_strategies;
  double objective = 0;  ///< known objective of a file that has none; 0: not known
  int num_axes = 2;      ///< of two devices each
};

constexpr Model kModels[] = {{"resnet18_2x2", "tests/golden/planner/resnet18_b128_32px_2x2.json.gz", true},
                             {"resnet50_2x2", "tests/golden/planner/resnet50_b128_32px_2x2.json.gz", true},
                             {"resnet152_2x2", "bench/plan/resnet152_2x2.json.gz", false, 22886070616.28},
                             {"gpt2_24_layers_2x2", "bench/plan/gpt2_24_layers_2x2.json.gz", false},
                             {"gpt2_24_layers_2x2x2", "bench/plan/gpt2_24_layers_2x2.json.gz", false, 0, 3},
                             {"llama3_70b_80_layers_2x2", "examples/models/llama-3-70b.json", false},
                             {"llama3_70b_80_layers_2x2x2", "examples/models/llama-3-70b.json", false, 0, 3}};

constexpr planner::Mesh kMesh{2, {2, 2}, {1, 1}, {1, 1}}, kMeshOfThree{3, {2, 2, 2}, {1, 1, 1}, {1, 1, 1}};

/// Reads a graph. A config.json gives the graph of its model in training, at 4096 tokens.
planner::PlanFile read(const Model& model) {
  if (std::string_view(model.file).starts_with("examples/")) {
    const auto config = models::load_model(std::string(SEQTILE_SOURCE_DIR "/") + model.file);
    return {.graph = models::model_graph(config, {.mesh = model.num_axes == 3 ? kMeshOfThree : kMesh, .length = 4096})};
  }
  planner::PlanFile file = planner::read_plan_file(std::string(SEQTILE_SOURCE_DIR "/") + model.file);
  if (model.objective > 0) file.objective = model.objective;
  if (model.num_axes == 3) file.graph->mesh = kMeshOfThree;
  return file;
}

/// The stages of a call's time.
struct Stages {
  double strategies_s = 0, problem_s = 0, total_s = 0;
};

double seconds_between(std::chrono::steady_clock::time_point start, std::chrono::steady_clock::time_point end) {
  return std::chrono::duration<double>(end - start).count();
}

planner::Solution plan_calibrated(planner::Graph& graph, Stages& stages) {
  const auto start = std::chrono::steady_clock::now();
  planner::ReshardTables paths(graph.mesh);
  const planner::CalibratedCosts costs;
  const planner::CalibratedStrategies strategies = planner::generate_calibrated_strategies(graph, costs, paths);
  const auto made = std::chrono::steady_clock::now();
  const planner::Problem problem = planner::calibrated_problem(graph, strategies, costs, paths);
  const auto priced = std::chrono::steady_clock::now();
  planner::Solution solution = planner::solve(problem);
  stages = {seconds_between(start, made), seconds_between(made, priced),
            seconds_between(start, std::chrono::steady_clock::now())};
  return solution;
}

planner::Solution plan_compat(planner::Graph& graph, bool makes_strategies, Stages& stages) {
  const auto start = std::chrono::steady_clock::now();
  if (makes_strategies) planner::generate_compat_strategies(graph);
  const auto made = std::chrono::steady_clock::now();
  const planner::Problem problem = planner::compat_problem(graph);
  const auto priced = std::chrono::steady_clock::now();
  planner::Solution solution = planner::solve(problem);
  stages = {seconds_between(start, made), seconds_between(made, priced),
            seconds_between(start, std::chrono::steady_clock::now())};
  return solution;
}

/// Plans a graph kCalls times. Method "own" makes the strategies; "file" takes those of the file. Under compat costs
/// the objective must equal the known one.
Result measure(const planner::PlanFile& file, bool is_calibrated, const std::string& method) {
  Result result;
  result.implementation = method;
  double strategies_s = 0, problem_s = 0;
  for (int call = -1; call < kCalls; ++call) {  // the first call warms up
    planner::Graph graph = *file.graph;
    if (is_calibrated) planner::apply(planner::Calibration(), graph.mesh);
    Stages stages;
    const planner::Solution solution =
        is_calibrated ? plan_calibrated(graph, stages) : plan_compat(graph, method == "own", stages);
    if (!is_calibrated && file.objective && std::abs(solution.objective - *file.objective) > 1e-9 * *file.objective)
      result.failure = fmt::format("objective {:.17g}, not {:.17g}", solution.objective, *file.objective);
    if (call < 0) continue;
    result.seconds.push_back(stages.total_s);
    strategies_s += stages.strategies_s, problem_s += stages.problem_s;
    result.counters["width"] = solution.width;
    result.counters["gap"] = solution.gap();
  }
  result.counters["strategies_ms"] = strategies_s / kCalls * 1e3;
  result.counters["problem_ms"] = problem_s / kCalls * 1e3;
  result.calls = kCalls;
  return result;
}

}  // namespace

void add_plan_cases(std::vector<Case>& cases, Environment&) {
  for (const Model& model : kModels)
    for (const std::string costs : {"compat", "calibrated"}) {
      Case item;
      item.operation = "plan", item.dtype = "f32", item.shape = model.name + ("_" + costs);
      item.implementations = {"own"};
      if (costs == "compat" && model.has_strategies) item.implementations.push_back("file");
      item.run = [model, is_calibrated = costs == "calibrated"](const Case&, const std::vector<std::string>& selected,
                                                                const RunOptions&) {
        const planner::PlanFile file = read(model);
        std::vector<Result> results;
        for (const std::string& method : selected) results.push_back(measure(file, is_calibrated, method));
        return results;
      };
      cases.push_back(std::move(item));
    }
}

}  // namespace seqtile::bench
