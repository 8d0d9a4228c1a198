// tools/cli/serve/replay.cpp -- `seqtile replay`: serves the requests of a trace and counts tunings, compiles and
// misses.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>

#include "jit/device/gpu_facts.h"
#include "seqtile/device.h"
#include "tools/cli/command.h"
#include "tools/cli/key_text.h"
#include "tools/cli/model_requests.h"
#include "tools/cli/output.h"
#include "tools/cli/requests/trace_columns.h"
#include "tools/cli/serve/layer_runner.h"
#include "tools/cli/serve/record_times.h"
#include "tools/cli/serve/replay_ranks.h"
#include "tools/cli/serve/replay_summary.h"

namespace seqtile::cli {
namespace {

constexpr int64_t kDefaultLength = 4096;  ///< longest chunk without any record

struct ReplayOptions : Options {
  TraceOptions trace;
  bool skip_bad_rows = false;
  std::string policy = "strict", execute, timeout;
};

/// The seconds to execute; 0: nothing is executed. Called first, because preparing may take a minute.
double seconds_to_execute(const ReplayOptions& options) {
  if (options.execute.empty()) return 0;
  const double seconds = parse_seconds("--execute", options.execute);
  if (const DeviceProfile* profile = find_profile(options.device))
    bad_input(
        fmt::format("--execute {}: --device {} is the profile of a GPU and executes nothing; leave --execute "
                    "out, or use --device cuda on a machine with that GPU, or --device sim:{}",
                    options.execute, options.device, gpu_target_name(profile->facts)));
  return seconds;
}

LayerReport execute(const Session& session, const models::Model& model, double seconds,
                    const std::vector<ServedOperation>& operations, std::span<const CountedCall> calls, Device& device,
                    CallClock& clock) {
  LayerRunner runner(session.registry, model, operations, device, clock);
  const CallSampler sampler(calls);
  std::mt19937_64 random(1);
  Progress progress("replay");
  const auto start = std::chrono::steady_clock::now();
  for (double gone = 0; gone < seconds;) {
    runner.run(sampler.draw(random));
    gone = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    progress.update({format_counted(runner.report().layers, "decoder layer") + " run and checked",
                     static_cast<int64_t>(1e3 * gone), static_cast<int64_t>(1e3 * seconds), 0, gone, seconds - gone});
  }
  return runner.report();
}

/// Calls have the tokens and keys that `--lengths` and `--kv-lengths` say, so that `prove` has looked at all of them.
/// Without `--lengths` chunks are as long as the records cover.
PlanLimits plan_limits(const Session& session, const ReplayOptions& options,
                       const std::vector<autotune::TuneRequest>& requests, bool is_length_given, Device& device,
                       cache::TuningStore& store) {
  const auto world = world_of(options);
  const int64_t positions = model_of(options).max_positions;
  const LengthRange tokens = parse_lengths("--lengths", options.lengths);
  PlanLimits limits{.chunk = tokens.hi, .max_kv = positions, .positions = positions, .least_tokens = tokens.lo};
  std::vector<ServedOperation> operations;
  for (const autotune::TuneRequest& request : requests) {
    operations.push_back(served_operation(request, 0, world ? world->size : 1));
    if (operations.back().role == Role::attention && operations.back().phase == Phase::decode)
      limits.max_kv = std::min(limits.max_kv, request.hi), limits.min_kv = std::max(limits.min_kv, request.lo);
  }
  const int64_t covered = covered_length(session.registry, operations, device, store);
  if (!is_length_given && covered > 0) limits.chunk = covered;
  return limits;
}

/// Reads the trace and adds up its calls. If ranks are processes, each rank reads the trace, and rank 0 reports on it.
void plan_trace(const ReplayOptions& options, const PlanLimits& limits, Served& served) {
  const bool is_told = !options.process || options.process->rank() == 0;
  RequestPlan plan(limits);
  std::optional<Progress> progress;
  if (is_told) progress.emplace("replay");
  const auto start = std::chrono::steady_clock::now();
  const auto show = [&](const TraceProgress& now) {
    if (!progress) return;
    const double gone = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    const double share =
        static_cast<double>(now.bytes_done) / static_cast<double>(std::max<int64_t>(now.bytes_total, 1));
    progress->update({format_count(now.requests) + " requests read", now.bytes_done, now.bytes_total, 0, gone,
                      share > 0 ? gone / share - gone : 0});
  };
  served.trace = read_trace(
      options.trace, [&](const TraceRequest& request) { plan.add(request); }, show);
  progress.reset();
  served.limits = limits;
  served.stream = plan.stream();
  if (served.stream.calls.empty())
    bad_input(
        fmt::format("--requests {}: no request has a call of the lengths asked for ({} to {} tokens, {} to {} keys "
                    "when it generates); give --lengths and --kv-lengths from 1 on",
                    options.trace.path, limits.least_tokens, limits.chunk, limits.min_kv, limits.max_kv));
  if (!is_told) return;
  for (const std::string& problem : served.trace.problems) warn(problem + "; left out");
  if (const int64_t more = served.trace.broken_rows - std::ssize(served.trace.problems); more > 0)
    warn(fmt::format("{} left out", format_counted(more, "further row")));
}

std::vector<ServedOperation> prepare_all(Engine& engine, const std::vector<autotune::TuneRequest>& requests) {
  Steps steps("replay", std::ssize(requests));
  std::vector<ServedOperation> operations;
  for (const autotune::TuneRequest& request : requests) {
    steps.begin("preparing " + request.label);
    operations.push_back(served_operation(request));
    operations.back().handle = engine.prepare(request.workload);
  }
  return operations;
}

void serve_alone(const Session& session, const ReplayOptions& options, double seconds,
                 const std::vector<autotune::TuneRequest>& requests, cache::TuningStore& store, Served& served) {
  const int threads = one_thread_count(options);
  const MissPolicy policy = parse_miss_policy(options.policy);
  const auto executor = make_executor(threads);  // for CPUs: shows when a call's first program starts
  CallClock clock(*executor);
  EngineOptions engine_options{.device = options.device,
                               .threads = threads,
                               .executor = options.device == "cpu" ? &clock : nullptr,
                               .cache = store.path(),
                               .artifacts = artifacts_path(options),
                               .policy = policy};
  const auto engine = Engine::open(engine_options, session.registry);
  const std::vector<ServedOperation> operations = prepare_all(*engine, requests);
  const std::vector<CountedCall>& calls = served.stream.calls;
  served.lookups = look_up_all(operations, calls);
  served.is_served = served.lookups.misses == 0 || policy != MissPolicy::strict;
  if (served.is_served && seconds > 0)
    served.layers = execute(session, model_of(options), seconds, operations, calls, engine->device(), clock);
  served.counters = engine->counters();
  served.times = record_times(session.registry, operations, calls, engine->device(), store);
}

/// Serves on ranks. `served.times` come from the last rank, which has the most rows.
void serve_on_ranks(const Session& session, const ReplayOptions& options, const World& world, double seconds,
                    Device& device, cache::TuningStore& store, Served& served) {
  const std::vector<CountedCall>& calls = served.stream.calls;
  RankModel::Settings settings{.policy = parse_miss_policy(options.policy), .title = "replay"};
  for (const auto& [call, count] : calls) settings.capacity = std::max(settings.capacity, call.tokens);
  if (!options.timeout.empty())
    settings.timeout = std::chrono::nanoseconds(
        static_cast<int64_t>(1e9 * std::min(parse_seconds("--timeout", options.timeout), 1e9)));
  RankReplay replay = replay_on_ranks(session, options, world, settings, calls, seconds);
  served.lookups = std::move(replay.lookups);
  served.layers = std::move(replay.layers);
  served.counters = replay.counters;
  served.is_served = served.lookups.misses == 0 || settings.policy != MissPolicy::strict;
  std::vector<ServedOperation> operations;
  for (const autotune::TuneRequest& request :
       rank_requests(session.registry, options, world, world.size - 1, one_thread_count(options)))
    operations.push_back(served_operation(request, world.size - 1, world.size));
  served.times = record_times(session.registry, operations, calls, device, store);
}

int replay(const Session& session, ReplayOptions& options) {
  const auto world = world_of(options);
  if (!world && !options.timeout.empty())
    bad_input(fmt::format("--timeout {}: one rank waits for nobody; add --ranks 2", options.timeout));
  apply_ranks(options);
  const double seconds = seconds_to_execute(options);
  check_is_file("--requests", options.trace.path, "give a trace: CSV or JSON lines");
  const bool is_length_given = !options.lengths.empty();
  if (!is_length_given) options.lengths = fmt::format("1..{}", kDefaultLength);
  const int threads = one_thread_count(options);
  const std::vector<autotune::TuneRequest> requests = model_requests(session.registry, options);
  check_stores_of(options);
  const auto store = open_store_of(options, StoreUse::read_existing);
  const auto device = open_device_of(options, threads);

  Served served;
  const PlanLimits limits = plan_limits(session, options, requests, is_length_given, *device, *store);
  plan_trace(options, limits, served);
  if (world) serve_on_ranks(session, options, *world, seconds, *device, *store, served);
  else serve_alone(session, options, seconds, requests, *store, served);
  check_was_read(*store);

  print_summary(served, options.skip_bad_rows, next_step("prewarm", options));
  if (options.json) {
    Json json = summary_json(served);
    if (world) {
      const Percentiles layer_us = served.layers.layer_us.percentiles();
      json["ranks"] = {{"world_size", world->size},
                       {"fabric", world->fabric},
                       {"layer_us", {{"p50", layer_us.p50}, {"p99", layer_us.p99}}}};
    }
    print_json(json);
  }
  const bool is_whole = served.trace.broken_rows == 0 || options.skip_bad_rows;
  return served.is_served && is_whole && served.layers.verified == served.layers.executed ? kDone : kNo;
}

int run(const Session& session, const ReplayOptions& given) {
  ReplayOptions options = given;
  enter_processes(options);
  return run_on_processes(options, [&] { return replay(session, options); });
}

void add_trace_options(CLI::App& command, ReplayOptions& options) {
  command.add_option("--requests", options.trace.path, "Requests: CSV or JSON lines, also packed by gzip")
      ->type_name("FILE")
      ->required();
  command.add_option("--requests-format", options.trace.layout, "Names of the columns (default: found by the header)")
      ->check(CLI::IsMember(trace_layouts(), CLI::ignore_case));
  const char* positions = "; or its position from 1 where the file has no header";
  command
      .add_option("--prompt-column", options.trace.prompt_column, std::string("Column of prompt tokens") + positions)
      ->type_name("NAME");
  command.add_option("--output-column", options.trace.output_column, "Column of generated tokens")->type_name("NAME");
  command.add_option("--time-column", options.trace.time_column, "Column of arrival times, for the trace's duration")
      ->type_name("NAME");
  command.add_flag("--skip-bad-rows", options.skip_bad_rows, "Exit with code 0 even if broken rows were left out");
}

}  // namespace

void add_replay(CLI::App& app, Session& session) {
  auto options = std::make_shared<ReplayOptions>();
  CLI::App& command = add_command(
      app, session, "replay", "Serve the requests of a trace: look up and plan all, execute a sample, check outputs",
      "  seqtile replay --model config.json --requests trace.csv --cache tuning.db --policy strict --execute 20s\n"
      "  seqtile replay --model config.json --requests trace.csv --cache tuning.db --lengths 1..2048 --json | tail -n "
      "1\n"
      "  seqtile replay --model config.json --requests trace.csv --cache tuning.db --ranks 2 --fabric threads "
      "--execute "
      "20s",
      options, run);
  add_model(command, *options);
  add_lengths(command, *options);
  add_key(command, *options);
  add_ranks(command, *options);
  add_stores(command, *options);
  command.get_option("--lengths")
      ->description("Tokens that calls may have; others are left out (default: what the cache covers)");
  add_trace_options(command, *options);
  command.add_option("--policy", options->policy, "Policy for missing records")
      ->check(CLI::IsMember({"strict", "default", "nearest", "background", "tune"}))
      ->capture_default_str();
  command.add_option("--execute", options->execute, "Run decoder layers of randomly chosen calls for this time")
      ->type_name("TIME");
  command.add_option("--timeout", options->timeout, "Time that a rank waits for another rank (default: 60s)")
      ->type_name("TIME");
}

}  // namespace seqtile::cli
