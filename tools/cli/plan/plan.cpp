// tools/cli/plan/plan.cpp -- `seqtile plan`: the strategy of each operator of a graph, and the cost of the plan.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>

#include "cache/database/text.h"
#include "jit/base/nearest_word.h"
#include "planner/graph/graph_json.h"
#include "planner/graph/json_reader.h"
#include "planner/solver/alternatives.h"
#include "planner/solver/solver.h"
#include "tools/cli/command.h"
#include "tools/cli/model_text.h"
#include "tools/cli/output.h"
#include "tools/cli/plan/plan.h"
#include "tools/cli/plan/plan_answer.h"
#include "tools/cli/plan/plan_cache.h"

namespace seqtile::cli {
namespace {

double ms_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
}

planner::SolveOptions solve_options(const PlanOptions& options) {
  planner::SolveOptions result;
  if (options.memory > 0) result.memory_budget = options.memory;
  return result;
}

/// Solves `problem`; `name` is for messages.
planner::Solution solve(const planner::Problem& problem, const std::string& name, const PlanOptions& options) {
  try {
    return planner::solve(problem, solve_options(options));
  } catch (const Error& error) {
    if (error.code() != ErrorCode::invalid_argument) throw;
    bad_input(planner::one_line(fmt::format("{}: {}", planner::shortened(name), error.what())));
  }
}

int run_solve(const Session&, const PlanOptions& options) {
  const planner::PlanFile file = planner::read_plan_file(options.file);
  if (!file.problem) bad_input(options.file + ": there is no \"problem\" in it; `seqtile plan graph` plans its nodes");
  const auto start = std::chrono::steady_clock::now();
  const planner::Solution solution = solve(*file.problem, options.file, options);
  const double ms = ms_since(start);
  return print_solution(solution, ms, options, Json(solution.choices));
}

planner::Graph read_graph(const PlanOptions& options) {
  planner::PlanFile file = planner::read_plan_file(options.file);
  if (!file.graph) bad_input(options.file + ": there are no \"nodes\" in it; `seqtile plan solve` needs none");
  return std::move(*file.graph);
}

/// Plans `graph`, or takes the plan from the cache; `name` is for messages.
int solve_graph(const Session& session, planner::Graph graph, const std::string& name, const PlanOptions& options) {
  const PriceSources sources = read_sources(session.registry, options.pricing);
  std::optional<PlanCache> cache;
  if (!options.pricing.records.cache.empty()) cache.emplace(graph, sources, options);
  if (const auto kept = cache ? cache->find(graph) : std::nullopt) {
    const std::string& cache_path = options.pricing.records.cache;
    fmt::print(stderr, "plan: from the cache, {}\n", cache::one_line(cache_path, cache_path.size()));
    return print_plan(kept->priced, kept->solution, kept->ms, options);
  }
  const auto start = std::chrono::steady_clock::now();
  Priced priced = price(sources, std::move(graph), name, options.pricing);
  planner::Solution solution = solve(priced.problem, name, options);
  const KeptPlan plan{std::move(priced), std::move(solution), ms_since(start)};
  if (cache && plan.solution.is_feasible) cache->keep(plan);
  return print_plan(plan.priced, plan.solution, plan.ms, options);
}

int run_graph(const Session& session, const PlanOptions& options) {
  planner::Graph graph = read_graph(options);
  check_devices(graph, options);
  return solve_graph(session, std::move(graph), options.file, options);
}

int run_model(const Session& session, const PlanOptions& options) {
  check_graph_file(options);
  models::ModelFile file = read_model_file(options.model, options.strict_model);
  warn_of_lengths(file, "--length", options.length);
  PlanOptions described = options;
  described.described = model_json(file).dump();
  if (options.format == "table") print_model(file);
  return solve_graph(session, graph_of_model(described), options.model, described);
}

std::vector<std::string_view> names_of(const planner::Graph& graph) {
  std::vector<std::string_view> names;
  for (const planner::Node& node : graph.nodes) names.push_back(node.name);
  return names;
}

/// Prints the cost of the whole plan with each strategy of one node.
int run_explain(const Session& session, const PlanOptions& options) {
  planner::Graph graph = read_graph(options);
  const auto found = std::ranges::find(graph.nodes, options.node, &planner::Node::name);
  if (found == graph.nodes.end())
    bad_input(fmt::format("{}: there is no node {}; `seqtile plan graph` lists them{}", options.file, options.node,
                          did_you_mean(options.node, names_of(graph))));
  const auto node = static_cast<size_t>(found - graph.nodes.begin());
  if (!options.pricing.is_calibrated() && !options.pricing.records.cache.empty())
    bad_input("--cache: no plan is kept here, and measured times are for --costs calibrated");
  const PriceSources sources = read_sources(session.registry, options.pricing);
  const Priced priced = price(sources, std::move(graph), options.file, options.pricing);
  const auto alternatives = planner::alternatives_of(priced.problem, static_cast<int>(node));
  std::vector<size_t> order(alternatives.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, {}, [&](size_t i) { return alternatives[i].objective; });
  const planner::Alternative& best = alternatives[order.front()];
  Table table({"strategy", "plan", "more than the best", "own part", "neighbours' part"});
  Json json = Json::array();
  for (const size_t i : order) {
    const planner::Alternative& other = alternatives[i];
    const double more = other.objective - best.objective, own = other.own - best.own;
    const std::string& name = priced.graph.nodes[node].strategies[i].name;
    table.add({name, fmt::format("{:.10g}", other.objective), fmt::format("{:.6g}", more), fmt::format("{:.6g}", own),
               fmt::format("{:.6g}", more - own)});
    json.push_back({{"strategy", name}, {"objective", other.objective}, {"own", other.own}});
  }
  table.print();
  for (const std::string& warning : warnings_of(priced, options.pricing)) print_line("warning: " + warning);
  if (options.json) print_json({{"node", options.node}, {"strategies", std::move(json)}});
  return kDone;
}

void add_model_choice(CLI::App& command, PlanOptions& options) {
  command.add_option("--model", options.model, "A Hugging Face config.json, or its folder")
      ->type_name("FILE")
      ->required();
  add_strict_model(command, options.strict_model);
  command.add_option("--mesh", options.mesh, "Devices of each axis, as in 2x4")->type_name("SIZES")->required();
  command.add_option("--length", options.length, "Tokens of a sequence")->type_name("N")->required();
  command.add_option("--batch", options.batch, "Sequences (default: 1)")->type_name("N")->check(at_least_one());
  command.add_option("--layers", options.layers, "Number of the model's layers to plan (default: all)")
      ->type_name("N")
      ->check(at_least_one());
  command
      .add_option("--phase", options.phase,
                  "training: logits of all tokens, and gradients; prefill: logits of the last token")
      ->check(CLI::IsMember({"training", "prefill"}));
  command.add_option("-o,--output", options.out, "Write the graph for `seqtile plan graph`; .gz: compressed")
      ->type_name("FILE");
}

void add_file(CLI::App& command, PlanOptions& options) {
  command.add_option("file", options.file, "JSON, plain or compressed with gzip (docs/plan_format.md)")
      ->type_name("FILE")
      ->required();
}

/// CLI::PositiveNumber accepts NaN and infinity.
std::string refuse_bytes(const std::string& text) {
  double bytes = 0;
  if (CLI::detail::lexical_cast(text, bytes) && std::isfinite(bytes) && bytes > 0) return {};
  return text + ": a finite number of bytes above 0 is wanted, as 16e9";
}

void add_memory(CLI::App& command, PlanOptions& options) {
  command.add_option("--memory", options.memory, "Memory of a device for the plan, in bytes")
      ->type_name("BYTES")
      ->check(CLI::Validator([](std::string& text) { return refuse_bytes(text); }, ""));
}

void add_devices_count(CLI::App& command, PlanOptions& options) {
  command.add_option("--devices", options.devices, "Number of devices; the mesh must have as many")
      ->type_name("N")
      ->check(at_least_one());
}

void add_format(CLI::App& command, PlanOptions& options) {
  command
      .add_option(
          "--format", options.format,
          "table (default), or on standard output alone: json; dot for Graphviz; dtensor: placements for PyTorch; "
          "html: a page")
      ->check(CLI::IsMember({"table", "json", "dot", "dtensor", "html"}));
}

void add_solve_flags(CLI::App& command, PlanOptions& options) {
  add_file(command, options);
  add_memory(command, options);
}

void add_graph_flags(CLI::App& command, PlanOptions& options) {
  add_file(command, options);
  add_memory(command, options);
  add_pricing_options(command, options.pricing);
  add_strategies_choice(command, options.pricing);
  add_devices_count(command, options);
  add_format(command, options);
}

void add_model_flags(CLI::App& command, PlanOptions& options) {
  add_model_choice(command, options);
  add_pricing_options(command, options.pricing);
  add_memory(command, options);
  add_devices_count(command, options);
  add_format(command, options);
}

void add_explain_flags(CLI::App& command, PlanOptions& options) {
  add_file(command, options);
  command.add_option("node", options.node, "Name of a node")->required();
  add_pricing_options(command, options.pricing);
  add_strategies_choice(command, options.pricing);
}

}  // namespace

void add_plan(CLI::App& app, Session& session) {
  CLI::App& plan = *app.add_subcommand("plan", "Find the cheapest way to cut a model over a mesh of devices");
  plan.require_subcommand(1);
  plan.footer(
      "Examples:\n  seqtile plan solve problem.json\n  seqtile plan graph resnet50.json.gz --memory 410e6 --json");
  struct Part {
    const char *name, *summary, *examples;
    int (*run)(const Session&, const PlanOptions&);
    void (*add_flags)(CLI::App&, PlanOptions&);
  };
  for (const Part& part :
       {Part{"solve", "Solve the arrays of a problem", "  seqtile plan solve problem.json.gz --json | tail -n 1",
             run_solve, add_solve_flags},
        Part{"graph", "Price every change of layout in a graph, then solve",
             "  seqtile plan graph resnet50.json.gz --strategies own\n"
             "  seqtile plan graph resnet50.json.gz --costs calibrated\n"
             "  seqtile plan graph resnet50.json.gz --format dot | dot -Tsvg > plan.svg",
             run_graph, add_graph_flags},
        Part{"model", "Make the graph of a transformer and plan it",
             "  seqtile plan model --model config.json --mesh 2x4 --length 4096\n"
             "  seqtile plan model --model config.json --mesh 8 --length 4096 --phase prefill -o graph.json.gz\n"
             "  seqtile plan model --model config.json --mesh 2x4 --length 4096 --format html > plan.html",
             run_model, add_model_flags},
        Part{"comm", "Price nine ways to sum a model's gradients over the mesh, and say which is fastest",
             "  seqtile plan comm --model config.json --mesh 2x4\n"
             "  seqtile plan comm --model config.json --mesh 2x4 --calibration machine.json --batch 8 --length 2048",
             run_comm, add_comm_flags},
        Part{"calibrate", "Measure the links and devices of this machine for --calibration",
             "  seqtile plan calibrate --ranks 2 -o machine.json\n"
             "  seqtile plan calibrate --mesh 2x2 --fabric processes --dtype bf16 -o machine.json",
             run_calibrate, add_calibrate_flags},
        Part{"run", "Run plans of a few decoder layers on ranks, and compare their times with the predictions",
             "  seqtile plan run --calibration machine.json\n"
             "  seqtile plan run --calibration machine.json --cache tuning.db --operators\n"
             "  seqtile plan run --calibration machine.json --model config.json --layers 2 --length 512",
             run_run, add_run_flags},
        Part{"explain", "Print the cost of the plan with each strategy of a node",
             "  seqtile plan explain resnet50.json.gz layer1_0_conv2", run_explain, add_explain_flags}}) {
    auto options = std::make_shared<PlanOptions>();
    CLI::App& command = *plan.add_subcommand(part.name, part.summary);
    command.footer(std::string("Examples:\n") + part.examples);
    command.callback([options, run = part.run, &session, &command] {
      session.json = options->json;
      refuse_file_conflicts(command);
      options->pricing.has_memory_limit = options->memory > 0;
      session.exit_code = run(session, *options);
    });
    part.add_flags(command, *options);
    CLI::Option* json =
        command.add_flag("--json", options->json, "Print one JSON object on the last line of standard output");
    if (CLI::Option* format = command.get_option_no_throw("--format")) json->excludes(format);
  }
}

}  // namespace seqtile::cli
