// tools/cli/plan/plan_run.cpp -- `seqtile plan run`: plans of a few decoder layers, predicted and measured.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>

#include "autotune/worker/stats.h"
#include "jit/base/assert.h"
#include "jit/base/counted.h"
#include "models/layers/model_graph.h"
#include "models/layers/model_plans.h"
#include "planner/solver/plan_costs.h"
#include "planner/solver/restriction.h"
#include "planner/solver/solver.h"
#include "tools/cli/errors.h"
#include "tools/cli/output.h"
#include "tools/cli/plan/plan.h"
#include "tools/cli/plan/plan_race.h"

namespace seqtile::cli {
namespace {

/// Ratio of predictions below which they do not predict an order.
constexpr double kClear = 1.10;
/// Tolerance between results of two plans. Results are of order 1, and plans add in different orders.
double tolerance_of(DType dtype) { return dtype == DType::f32 ? 1e-3 : 0.15; }

struct Contestant {
  std::string name;
  planner::Choices choices;
  double predicted = 0;
};

models::Model model_of(const PlanOptions& options) {
  models::Model model;
  if (!options.model.empty()) {
    model = read_model(options);
  } else {
    const BlockSizes& sizes = options.run.sizes;
    if (sizes.hidden % sizes.heads != 0 || sizes.heads % sizes.kv_heads != 0)
      bad_input(
          fmt::format("--hidden {} --heads {} --kv-heads {}: heads must divide the hidden size, and KV heads "
                      "the heads",
                      sizes.hidden, sizes.heads, sizes.kv_heads));
    const int64_t head_dim = sizes.hidden / sizes.heads;
    model = {.type = "llama",
             .hidden_size = sizes.hidden,
             .intermediate_size = sizes.intermediate,
             .layers = std::max<int64_t>(options.layers, 1),
             .heads = sizes.heads,
             .kv_heads = sizes.kv_heads,
             .head_dim = head_dim,
             .activation = "silu",
             .norm_eps = 1e-5};
    model.set_kind({.rope = {.rotary_dim = head_dim}});
  }
  model.dtype = parse_dtype_flag(options.run.dtype);
  return model;
}

Priced price_block(const Session& session, const models::Model& model, const PlanOptions& options) {
  const int64_t length = parse_length("--length", options.length);
  if (length < 2 * options.run.ranks)
    bad_input(
        fmt::format("--length {}: give each of {} two tokens at least", length, counted(options.run.ranks, "rank")));
  const planner::Mesh mesh{1, {options.run.ranks}, {1}, {1}};
  if (options.pricing.calibration.empty())
    bad_input(
        fmt::format("plan run needs --calibration FILE, the costs of this machine; `seqtile plan calibrate "
                    "--ranks {} --threads 1 -o FILE` measures them",
                    options.run.ranks));
  PricingOptions pricing = options.pricing;
  pricing.costs = "calibrated";
  pricing.records.device.clear();
  pricing.records.threads = "1";
  const PriceSources sources = read_sources(session.registry, pricing);
  if (const auto& measured = sources.calibration.measured; measured && measured->dtype != dtype_name(model.dtype))
    bad_input(
        fmt::format("{}: measured with products of {}, but the plans are of {}; give --dtype {}, or calibrate anew",
                    pricing.calibration, measured->dtype, dtype_name(model.dtype), measured->dtype));
  return price(
      sources,
      models::model_graph(
          model, {.mesh = mesh, .length = length, .layers = options.layers, .is_training = false, .is_block = true}),
      options.model, pricing);
}

std::vector<Contestant> named_plans(const Priced& priced) {
  std::vector<Contestant> plans;
  for (const models::ModelPlan plan : models::kModelPlans) {
    const planner::Allowed allowed = models::allowed_strategies(priced.graph, plan);
    const planner::Solution solution = planner::solve(planner::restricted(priced.problem, allowed));
    plans.push_back(
        {std::string(models::plan_name(plan)), planner::unrestricted(allowed, solution.choices), solution.objective});
  }
  return plans;
}

/// The cheapest of all plans. Its cost may equal a named plan's.
Contestant own_plan(const Priced& priced) {
  planner::Solution best = planner::solve(priced.problem);
  return {"the planner's own", std::move(best.choices), best.objective};
}
bool costs_less(const Contestant& plan, const Contestant& than) { return plan.predicted < than.predicted * (1 - 1e-9); }

// --- results

struct Pair {
  size_t faster, slower;  ///< as predicted
};

struct Verdict {
  std::vector<Pair> clear, wrong;  ///< clear: pairs predicted clearly apart; wrong: clear pairs measured the other way
  std::vector<size_t> different;   ///< plans whose results differ from the first plan's
};

double measured(const PlanTimes& times) { return autotune::median(times.seconds); }

Verdict judge(const std::vector<Contestant>& plans, const std::vector<PlanTimes>& times, DType dtype) {
  Verdict verdict;
  for (size_t a = 0; a < plans.size(); ++a) {
    if (!times[a].refusal.empty()) continue;
    if (!(times[a].difference <= tolerance_of(dtype))) verdict.different.push_back(a);
    for (size_t b = 0; b < plans.size(); ++b) {
      if (!times[b].refusal.empty() || plans[b].predicted < kClear * plans[a].predicted) continue;
      verdict.clear.push_back({a, b});
      if (measured(times[a]) >= measured(times[b])) verdict.wrong.push_back({a, b});
    }
  }
  return verdict;
}

void print_times(const std::vector<Contestant>& plans, const std::vector<PlanTimes>& times) {
  Table table({"plan", "predicted", "measured", "p20", "p80", "measured / predicted", "difference"});
  for (size_t i = 0; i < plans.size(); ++i) {
    const auto us = [&](double q) { return format_us(1e6 * autotune::quantile(times[i].seconds, q)); };
    if (!times[i].refusal.empty()) table.add({plans[i].name, format_us(1e6 * plans[i].predicted), "", "", "", "", ""});
    else
      table.add({plans[i].name, format_us(1e6 * plans[i].predicted), us(0.5), us(0.2), us(0.8),
                 fmt::format("{:.2f}", measured(times[i]) / plans[i].predicted),
                 fmt::format("{:.1e}", times[i].difference)});
  }
  table.print();
  for (size_t i = 0; i < plans.size(); ++i)
    if (!times[i].refusal.empty()) print_line(fmt::format("{} is not run: {}", plans[i].name, times[i].refusal));
}

void print_verdict(const std::vector<Contestant>& plans, const std::vector<PlanTimes>& times, const Verdict& verdict) {
  for (const size_t i : verdict.different)
    print_line(
        fmt::format("wrong: {} differs from {} by {:.3g}", plans[i].name, plans.front().name, times[i].difference));
  for (const auto& [faster, slower] : verdict.wrong)
    print_line(fmt::format("wrong: {} should be {:.0f} % slower than {}, and takes {} against {}", plans[slower].name,
                           100 * (plans[slower].predicted / plans[faster].predicted - 1), plans[faster].name,
                           format_us(1e6 * measured(times[slower])), format_us(1e6 * measured(times[faster]))));
  print_line(fmt::format("{} of plans predicted at least {:.0f} % apart, {} in the predicted order",
                         format_counted(std::ssize(verdict.clear), "pair"), 100 * (kClear - 1),
                         verdict.clear.size() - verdict.wrong.size()));
}

// --- operators

/// The times of an operator, summed over all layers.
struct OperatorTime {
  std::string name, strategy;
  double predicted = 0, measured = 0;
};

/// "self_attn_q_proj" for "model_layers_1_self_attn_q_proj".
std::string name_in_layer(const std::string& name) {
  constexpr std::string_view kLayers = "model_layers_";
  if (!name.starts_with(kLayers)) return name;
  return name.substr(name.find('_', kLayers.size()) + 1);
}

std::string name_of(const StepTime& step, const planner::Graph& graph) {
  std::string names;
  for (const int node : step.nodes)
    names += (names.empty() ? "" : ", ") + name_in_layer(graph.nodes[static_cast<size_t>(node)].name);
  return step.is_change ? step.operation + " before " + names : names;
}

std::vector<OperatorTime> operator_times(const Priced& priced, const Contestant& plan, const PlanTimes& times) {
  std::vector<planner::OperatorCost> costs = planner::operator_costs(priced.graph, priced.problem, plan.choices);
  std::vector<OperatorTime> result;
  for (const StepTime& step : times.steps) {
    const auto leader = static_cast<size_t>(step.nodes.front());
    const planner::Strategy& strategy =
        priced.graph.nodes[leader].strategies[static_cast<size_t>(plan.choices[leader])];
    const OperatorTime added{name_of(step, priced.graph), step.is_change ? "change of layout" : strategy.name};
    auto at = std::ranges::find_if(result, [&](const OperatorTime& other) {
      return other.name == added.name && other.strategy == added.strategy;
    });
    if (at == result.end()) at = result.insert(at, added);
    for (const int node : step.nodes) {
      planner::OperatorCost& cost = costs[static_cast<size_t>(node)];
      at->predicted += step.is_change ? std::exchange(cost.reshard, 0) : cost.compute + cost.communication;
    }
    at->measured += autotune::median(step.seconds);
  }
  return result;
}

void print_operators(const Contestant& plan, const std::vector<OperatorTime>& operators) {
  print_line("");
  Table table({plan.name, "strategy", "predicted", "measured", "measured / predicted"});
  for (const OperatorTime& each : operators)
    table.add({each.name, each.strategy, format_us(1e6 * each.predicted), format_us(1e6 * each.measured),
               fmt::format("{:.2f}", each.measured / each.predicted)});
  table.print();
}

Json operators_json(const std::vector<OperatorTime>& operators) {
  Json rows = Json::array();
  for (const OperatorTime& each : operators)
    rows.push_back({{"name", each.name},
                    {"strategy", each.strategy},
                    {"predicted_s", each.predicted},
                    {"measured_s", each.measured}});
  return rows;
}

Json plan_json(const Contestant& plan, const PlanTimes& times) {
  if (!times.refusal.empty()) return {{"name", plan.name}, {"predicted_s", plan.predicted}, {"refusal", times.refusal}};
  return {{"name", plan.name},
          {"predicted_s", plan.predicted},
          {"measured_s", measured(times)},
          {"p20_s", autotune::quantile(times.seconds, 0.2)},
          {"p80_s", autotune::quantile(times.seconds, 0.8)},
          {"difference", times.difference}};
}

Json pairs_json(const std::vector<Contestant>& plans, const std::vector<Pair>& pairs) {
  Json rows = Json::array();
  for (const auto& [faster, slower] : pairs) rows.push_back({plans[faster].name, plans[slower].name});
  return rows;
}

void print_best(const Priced& priced, const Contestant& own, const std::string& name) {
  int kernels = 0, measured = 0;
  for (size_t node = 0; node < own.choices.size(); ++node) {
    const planner::Strategy& strategy = priced.graph.nodes[node].strategies[static_cast<size_t>(own.choices[node])];
    kernels += strategy.kernels;
    measured += strategy.measured;
  }
  print_line(
      fmt::format("the best of all plans is predicted to take {}: {}; {} of its {} kernel times are measured, "
                  "the others come from a roofline",
                  format_us(1e6 * own.predicted), name, measured, kernels));
}

std::vector<PlanTimes> times_of(const Session& session, const models::Model& model, const Priced& priced,
                                const std::vector<Contestant>& plans, const PlanOptions& options) {
  std::vector<planner::Choices> choices;
  for (const Contestant& plan : plans) choices.push_back(plan.choices);
  Progress progress("plan run");
  const auto start = std::chrono::steady_clock::now();
  const auto tell = [&](const std::string& activity, int64_t done, int64_t total) {
    const double gone = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    progress.update({activity, done, total, 0, gone, 0});
  };
  const RunOptions& run = options.run;
  return race_plans(session, model, priced.graph, choices,
                    {run.ranks, run.rounds, run.operators, options.pricing.records.cache, tell});
}

void check_ranks(int ranks) {
  if (ranks > cores_available())
    warn(fmt::format("{} ranks on {}: the ranks share cores, so that times say little", ranks,
                     format_counted(cores_available(), "core")));
}

}  // namespace

void add_run_flags(CLI::App& command, PlanOptions& options) {
  RunOptions& run = options.run;
  options.length = "512";
  options.layers = 2;
  const auto up_to = [&](int64_t most, const char* flag, auto& value, const char* text) {
    const CLI::Range range(int64_t{1}, most);
    return command.add_option(flag, value, text)->type_name("N")->check(range)->capture_default_str();
  };
  CLI::Option* model = command.add_option("--model", options.model, "A Hugging Face config.json (default: the sizes)");
  model->type_name("FILE");
  up_to(1 << 16, "--hidden", run.sizes.hidden, "Hidden size")->excludes(model);
  up_to(1 << 10, "--heads", run.sizes.heads, "Attention heads")->excludes(model);
  up_to(1 << 10, "--kv-heads", run.sizes.kv_heads, "Heads of keys and values")->excludes(model);
  up_to(1 << 18, "--intermediate", run.sizes.intermediate, "Columns between gate and down projection")->excludes(model);
  up_to(100, "--layers", options.layers, "Decoder layers");
  command.add_option("--length", options.length, "Tokens of the sequence")->type_name("N")->capture_default_str();
  command.add_option("--dtype", run.dtype, "f32, bf16 or f16")->capture_default_str();
  command.add_option("--ranks", run.ranks, "Ranks: threads with one core each")
      ->type_name("N")
      ->check(CLI::Range(2, channel::kMaxRanks))
      ->capture_default_str();
  up_to(1000, "--rounds", run.rounds, "Times that each plan is run");
  command.add_flag("--operators", run.operators, "Time each operator too, by itself");
  command
      .add_option("--calibration", options.pricing.calibration,
                  "JSON of links and device, from `seqtile plan calibrate` on this machine; required")
      ->type_name("FILE");
  command
      .add_option("--cache", options.pricing.records.cache,
                  "tuning.db: its times predict, its configurations run (default: predictions by a roofline)")
      ->type_name("FILE");
}

int run_run(const Session& session, const PlanOptions& options) {
  const models::Model model = model_of(options);
  const Priced priced = price_block(session, model, options);
  std::vector<Contestant> plans = named_plans(priced);
  const Contestant own = own_plan(priced), fastest = *std::ranges::min_element(plans, {}, &Contestant::predicted);
  SEQTILE_ASSERT(!costs_less(fastest, own));
  const std::string best = costs_less(own, fastest) ? own.name : fastest.name;
  if (best == own.name) plans.push_back(own);
  check_ranks(options.run.ranks);
  const std::vector<PlanTimes> times = times_of(session, model, priced, plans, options);
  const Verdict verdict = judge(plans, times, model.dtype);

  print_times(plans, times);
  Json json = Json::array();
  for (size_t i = 0; i < plans.size(); ++i) {
    Json& row = json.emplace_back(plan_json(plans[i], times[i]));
    if (!options.run.operators || !times[i].refusal.empty()) continue;
    const std::vector<OperatorTime> operators = operator_times(priced, plans[i], times[i]);
    print_operators(plans[i], operators);
    row["operators"] = operators_json(operators);
  }
  print_best(priced, own, best);
  print_verdict(plans, times, verdict);
  const bool is_good = verdict.wrong.empty() && verdict.different.empty();
  if (options.json)
    print_json({{"ranks", options.run.ranks},
                {"rounds", options.run.rounds},
                {"plans", std::move(json)},
                {"best", best},
                {"best_s", own.predicted},
                {"clear_pairs", pairs_json(plans, verdict.clear)},
                {"wrong_pairs", pairs_json(plans, verdict.wrong)},
                {"same_results", verdict.different.empty()}});
  return is_good ? kDone : kNo;
}

}  // namespace seqtile::cli
