// bench/plan_bench.cpp -- from a parsed graph to its plan, on one thread.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <chrono>
#include <cmath>

#include "autotune/plan/compat_problem.h"
#include "autotune/plan/compat_strategies.h"
#include "autotune/plan/graph_json.h"
#include "autotune/plan/solver.h"
#include "bench/suites.h"

namespace seqtile::bench {
namespace {

constexpr int kCalls = 20;

struct Model {
  const char *name, *file;
};

constexpr Model kModels[] = {{"resnet18_2x2", "resnet18_b128_32px_2x2"},
                             {"resnet50_2x2", "resnet50_b128_32px_2x2"},
                             {"gpt2_block_2x2", "gpt_block_384"}};

/// "own": strategies are made; "file": they are there. The objective has to be the stored one.
Result measure(const plan::PlanFile& file, const std::string& method) {
  Result result;
  result.implementation = method;
  double strategies_s = 0, problem_s = 0;
  for (int call = -1; call < kCalls; ++call) {  // the first one warms up
    plan::Graph graph = *file.graph;
    const auto start = std::chrono::steady_clock::now();
    if (method == "own") plan::generate_compat_strategies(graph);
    const auto made = std::chrono::steady_clock::now();
    const plan::Problem problem = plan::compat_problem(graph);
    const auto priced = std::chrono::steady_clock::now();
    const plan::Solution solution = plan::solve(problem);
    const auto end = std::chrono::steady_clock::now();
    const auto seconds = [](auto duration) { return std::chrono::duration<double>(duration).count(); };
    if (std::abs(solution.objective - *file.objective) > 1e-9 * *file.objective)
      result.failure = fmt::format("objective {:.17g}, not {:.17g}", solution.objective, *file.objective);
    if (call < 0) continue;
    result.seconds.push_back(seconds(end - start));
    strategies_s += seconds(made - start), problem_s += seconds(priced - made);
    result.counters["width"] = solution.width;
  }
  result.counters["strategies_ms"] = strategies_s / kCalls * 1e3;
  result.counters["problem_ms"] = problem_s / kCalls * 1e3;
  result.calls = kCalls;
  return result;
}

}  // namespace

void add_plan_cases(std::vector<Case>& cases, Environment&) {
  for (const Model& model : kModels) {
    Case item;
    item.operation = "plan", item.dtype = "compat", item.shape = model.name;
    item.implementations = {"own", "file"};
    item.run = [model](const Case&, const std::vector<std::string>& selected, const RunOptions&) {
      const plan::PlanFile file =
          plan::read_plan_file(fmt::format(SEQTILE_SOURCE_DIR "/tests/golden/planner/{}.json.gz", model.file));
      std::vector<Result> results;
      for (const std::string& method : selected) results.push_back(measure(file, method));
      return results;
    };
    cases.push_back(std::move(item));
  }
}

}  // namespace seqtile::bench
