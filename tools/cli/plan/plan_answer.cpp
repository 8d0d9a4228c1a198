// tools/cli/plan/plan_answer.cpp -- see plan_answer.h.
// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/plan/plan_answer.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "planner/graph/shared_parameters.h"
#include "planner/solver/plan_costs.h"
#include "tools/cli/errors.h"

namespace seqtile::cli {
namespace {

std::string exactness(const planner::Solution& solution) {
  if (solution.is_exact()) return "exact";
  return fmt::format("at most {:.2g} % above the best, which costs at least {:.17g}", 100 * solution.gap(),
                     solution.lower_bound);
}

Json solution_json(const planner::Solution& solution, double ms, Json plan) {
  return {{"objective", solution.objective},
          {"lower_bound", solution.lower_bound},
          {"gap", solution.gap()},
          {"exact", solution.is_exact()},
          {"width", solution.width},
          {"memory", solution.memory},
          {"ms", ms},
          {"plan", std::move(plan)}};
}

Json parts_json(const CostParts& parts) {
  return {{"compute_s", parts.compute},
          {"communication_s", parts.communication},
          {"resharding_s", parts.resharding},
          {"kernels", parts.kernels},
          {"measured", parts.measured}};
}

/// The number of operators in the graph, and of operators without rules.
Json graph_json(const Priced& priced) {
  const int operators = planner::count_operators(priced.graph), unknown = priced.unknown.count();
  Json by_name = Json::object();
  for (const auto& one : priced.unknown.all) by_name[one.name] = one.count;
  return {{"operators", operators},
          {"unknown", unknown},
          {"unknown_share", operators ? static_cast<double>(unknown) / operators : 0},
          {"unknown_operators", std::move(by_name)},
          {"parameters", planner::count_parameters(priced.graph)}};
}

std::string graph_line(const Priced& priced) {
  const int operators = planner::count_operators(priced.graph), unknown = priced.unknown.count();
  return fmt::format("graph: {:.0f} parameters; {} of {} unknown ({:.3g} %)", planner::count_parameters(priced.graph),
                     unknown, format_counted(operators, "operator"), operators ? 100.0 * unknown / operators : 0);
}

void print_parts(const CostParts& parts) {
  const double sum = parts.compute + parts.communication + parts.resharding;
  print_line(fmt::format("{}: {} of kernels, {} of communication that kernels do not hide, {} of changes of layout",
                         format_us(1e6 * sum), format_us(1e6 * parts.compute), format_us(1e6 * parts.communication),
                         format_us(1e6 * parts.resharding)));
  print_line(fmt::format("kernel times: {} of {} measured, the others by a roofline", parts.measured, parts.kernels));
}

std::string no_plan(const planner::Solution& solution, const PlanOptions& options) {
  const bool is_proven = solution.smallest_budget_bound > options.memory,
             is_least = solution.smallest_budget_bound >= solution.smallest_budget;
  std::string text = fmt::format(
      "no plan {} {} of memory on a device; the smallest memory that {} is {} ({:.17g} bytes)",
      is_proven ? "fits" : "was found that fits", format_bytes(options.memory),
      is_least ? "suffices" : "was found to suffice", format_bytes(solution.smallest_budget), solution.smallest_budget);
  if (!is_least) text += fmt::format(", and no plan fits less than {:.17g}", solution.smallest_budget_bound);
  return text;
}

/// Prints a row for each operator.
void print_table(const Priced& priced, const planner::Choices& choices) {
  Table table({"node", "strategy", "cost", "memory"});
  const auto costs = planner::operator_costs(priced.graph, priced.problem, choices);
  for (size_t i = 0; i < choices.size(); ++i) {
    const auto chosen = static_cast<size_t>(choices[i]);
    table.add({priced.graph.nodes[i].name, priced.graph.nodes[i].strategies[chosen].name,
               fmt::format("{:.6g}", priced.problem.costs[i][chosen]), format_bytes(costs[i].memory)});
  }
  table.print();
}

Json strategies_by_node(const Priced& priced, const planner::Choices& choices) {
  Json::object_t names;  // filled by emplace_back, because [] searches all earlier names; no two names are equal
  for (size_t i = 0; i < choices.size(); ++i)
    names.emplace_back(priced.graph.nodes[i].name,
                       priced.graph.nodes[i].strategies[static_cast<size_t>(choices[i])].name);
  return names;
}

/// The costs of all operators; their sum is the objective.
Json operators_json(const Priced& priced, const planner::Choices& choices) {
  Json rows = Json::array();
  const auto costs = planner::operator_costs(priced.graph, priced.problem, choices);
  for (size_t i = 0; i < choices.size(); ++i)
    rows.push_back({{"name", priced.graph.nodes[i].name},
                    {"strategy", priced.graph.nodes[i].strategies[static_cast<size_t>(choices[i])].name},
                    {"compute", costs[i].compute},
                    {"communication", costs[i].communication},
                    {"reshard", costs[i].reshard},
                    {"memory", costs[i].memory}});
  return rows;
}

/// Prints the plan alone on standard output, for other programs. Warnings go to standard error.
int print_format(const Priced& priced, const planner::Solution& solution, double ms, const PlanOptions& options) {
  for (const std::string& warning : warnings_of(priced, options.pricing)) warn(warning);
  if (!solution.is_feasible) {
    warn(no_plan(solution, options));
    return kNo;
  }
  if (options.format == "dot") print_text(plan_dot(priced, solution));
  if (options.format == "dtensor") print_text(plan_dtensor(priced, solution));
  if (options.format == "html") print_text(plan_page(priced, solution));
  if (options.format != "json") return kDone;
  Json json = solution_json(solution, ms, strategies_by_node(priced, solution.choices));
  json["operators"] = operators_json(priced, solution.choices);
  json["graph"] = graph_json(priced);
  if (options.pricing.is_calibrated()) json["parts"] = parts_json(parts_of(priced, solution));
  print_json(json);
  return kDone;
}

}  // namespace

int print_solution(const planner::Solution& solution, double ms, const PlanOptions& options, Json plan,
                   const Json& more) {
  if (!solution.is_feasible) {
    print_line(no_plan(solution, options));
    if (options.json)
      print_json({{"feasible", false},
                  {"smallest_memory", solution.smallest_budget},
                  {"smallest_memory_bound", solution.smallest_budget_bound}});
    return kNo;
  }
  print_line(fmt::format("objective {:.17g}, {}; width {}; {} on a device; {:.2f} ms", solution.objective,
                         exactness(solution), solution.width, format_bytes(solution.memory), ms));
  if (!options.json) return kDone;
  Json json = solution_json(solution, ms, std::move(plan));
  json.update(more);
  print_json(json);
  return kDone;
}

int print_plan(const Priced& priced, const planner::Solution& solution, double ms, const PlanOptions& options) {
  if (options.format != "table") return print_format(priced, solution, ms, options);
  Json more = Json::object();
  if (!options.described.empty()) more["model"] = Json::parse(options.described);
  if (solution.is_feasible) print_table(priced, solution.choices);
  if (solution.is_feasible && options.pricing.is_calibrated()) {
    const CostParts parts = parts_of(priced, solution);
    print_parts(parts);
    more["parts"] = parts_json(parts);
  }
  print_line(graph_line(priced));
  more["graph"] = graph_json(priced);
  for (const std::string& warning : warnings_of(priced, options.pricing)) print_line("warning: " + warning);
  return print_solution(solution, ms, options, strategies_by_node(priced, solution.choices), more);
}

}  // namespace seqtile::cli
