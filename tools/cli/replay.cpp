// tools/cli/replay.cpp -- `seqtile replay`: serves the requests of a trace and counts what that took.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <random>

#include "jit/device_profile.h"
#include "tools/cli/command.h"
#include "tools/cli/key_text.h"
#include "tools/cli/layer_runner.h"
#include "tools/cli/model_requests.h"
#include "tools/cli/output.h"
#include "tools/cli/record_times.h"
#include "tools/cli/replay_ranks.h"

namespace seqtile::cli {
namespace {

constexpr int64_t kDefaultLength = 4096;  ///< longest chunk where nothing is recorded at all

struct ReplayOptions : Options {
  std::string trace, policy = "strict", execute, deadline;
};

/// What serving the trace has given.
struct Served {
  Stream stream;
  LookupReport lookups;
  LayerReport layers;
  EngineCounters counters;
  std::vector<OperationTimes> times;
  bool is_served = false;  ///< no miss that the policy has no answer for
};

/// How long to execute, 0: not at all. Said before anything is prepared, which may take a minute.
double seconds_to_execute(const ReplayOptions& options) {
  if (options.execute.empty()) return 0;
  const double seconds = parse_seconds("--execute", options.execute);
  if (const DeviceProfile* profile = find_profile(options.device))
    bad_input(
        fmt::format("--execute {}: --device {} is the profile of a GPU, on which nothing runs; leave --execute "
                    "out, or use --device cuda where that GPU is, or --device sim:{}",
                    options.execute, options.device, gpu_target_name(profile->facts)));
  return seconds;
}

LayerReport execute(const Session& session, const models::Model& model, double seconds,
                    const std::vector<ServedOperation>& operations, const std::vector<PlannedCall>& calls,
                    Device& device, CallClock& clock) {
  LayerRunner runner(session.registry, model, operations, device, clock);
  std::mt19937_64 random(1);
  Progress progress("replay");
  const auto start = std::chrono::steady_clock::now();
  for (double gone = 0; gone < seconds;) {
    runner.run(calls[random() % calls.size()]);
    gone = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    progress.update({fmt::format("{} decoder layers run and checked", runner.report().layers),
                     static_cast<int64_t>(1e3 * gone), static_cast<int64_t>(1e3 * seconds), 0, gone, seconds - gone});
  }
  return runner.report();
}

void print_summary(const Trace& trace, const Stream& stream, const LookupReport& lookups, LayerReport& layers,
                   const EngineCounters& counters, const Percentiles& call_us, const Percentiles& layer_us,
                   const std::string& next_prewarm) {
  print_line(fmt::format("{} requests (lines {} to {} of the trace, {} broken rows left out), {} distinct lengths",
                         format_count(trace.requests.size()), trace.first_line, trace.last_line,
                         format_count(trace.broken_rows), format_count(stream.distinct_lengths)));
  print_line(fmt::format(
      "planned {} prefill chunks and {} sampled decode steps; {} generated tokens beyond the last key cut",
      format_count(stream.chunks), format_count(stream.decode_steps), format_count(stream.cut_decode_steps)));
  print_line(fmt::format("{} lookups in {} buckets: {} misses; p50 {:.0f} ns, p99 {:.0f} ns",
                         format_count(lookups.lookups), format_count(lookups.buckets), format_count(lookups.misses),
                         lookups.lookup_ns.p50, lookups.lookup_ns.p99));
  for (const std::string& line : lookups.miss_lines) print_line("  miss: " + line);
  if (lookups.misses > 0 && layers.layers == 0)
    print_line("nothing was executed; cover these lengths with " + next_prewarm);
  if (layers.layers > 0)
    print_line(fmt::format(
        "{} decoder layers executed: {} operations, {} verified, largest relative error {:.2g}; {}",
        format_count(layers.layers), format_count(layers.executed), format_count(layers.verified), layers.max_rel_err,
        layers.layer_us.empty()
            ? fmt::format("entry to first program p50 {:.2f} us, p99 {:.2f} us", call_us.p50, call_us.p99)
            : fmt::format("a layer takes p50 {:.0f} us, p99 {:.0f} us, a fused call's entry to its first program p50 "
                          "{:.2f} us, p99 {:.2f} us",
                          layer_us.p50, layer_us.p99, call_us.p50, call_us.p99)));
  for (const std::string& line : layers.failures) print_line("  wrong: " + line);
  print_line(fmt::format("while serving: {} tunings, {} compiles ({} at load)", counters.tunings, counters.compiles,
                         counters.compiles_at_load));
}

Json times_json(const std::vector<OperationTimes>& times) {
  Json list = Json::array();
  for (const OperationTimes& row : times)
    list.push_back({{"operation", row.label},
                    {"calls", row.calls},
                    {"tuned_s", row.tuned_s},
                    {"default_s", row.default_s},
                    {"padded_s", row.padded_s},
                    {"speedup", row.speedup()}});
  return list;
}

/// The calls of the trace: in chunks as long as `--lengths` says, or as the records cover.
Stream plan_calls(const Session& session, const ReplayOptions& options, const Trace& trace,
                  const std::vector<autotune::TuneRequest>& requests, bool is_length_given, Device& device,
                  cache::TuningStore& store) {
  const auto world = world_of(options);
  PlanLimits limits{parse_lengths("--lengths", options.lengths).hi, model_of(options).max_positions};
  std::vector<ServedOperation> operations;
  for (const autotune::TuneRequest& request : requests) {
    operations.push_back(served_operation(request, 0, world ? world->size : 1));
    if (operations.back().role == Role::attention && operations.back().phase == Phase::decode)
      limits.max_kv = std::min(limits.max_kv, request.hi);
  }
  const int64_t covered = covered_length(session.registry, operations, device, store);
  if (!is_length_given && covered > 0) limits.chunk = covered;
  return plan_stream(trace, limits);
}

void serve_alone(const Session& session, const ReplayOptions& options, double seconds,
                 const std::vector<autotune::TuneRequest>& requests, cache::TuningStore& store, Served& served) {
  const int threads = one_thread_count(options);
  const MissPolicy policy = parse_miss_policy(options.policy);
  const auto executor = make_executor(threads);  // of a CPU, to see when a call's first program starts
  CallClock clock(*executor);
  EngineOptions engine_options{.device = options.device,
                               .threads = threads,
                               .executor = options.device == "cpu" ? &clock : nullptr,
                               .cache = store.path(),
                               .artifacts = artifacts_path(options),
                               .policy = policy};
  const auto engine = Engine::open(engine_options, session.registry);
  std::vector<ServedOperation> operations;
  for (const autotune::TuneRequest& request : requests) {
    operations.push_back(served_operation(request));
    operations.back().handle = engine->prepare(request.workload);
  }
  const std::vector<PlannedCall>& calls = served.stream.calls;
  served.lookups = look_up_all(operations, calls);
  served.is_served = served.lookups.misses == 0 || policy != MissPolicy::strict;
  if (served.is_served && seconds > 0)
    served.layers = execute(session, model_of(options), seconds, operations, calls, engine->device(), clock);
  served.counters = engine->counters();
  served.times = record_times(session.registry, operations, calls, engine->device(), store);
}

/// Times are those of the last rank, which has the most rows.
void serve_on_ranks(const Session& session, const ReplayOptions& options, const World& world, double seconds,
                    Device& device, cache::TuningStore& store, Served& served) {
  const std::vector<PlannedCall>& calls = served.stream.calls;
  RankModel::Settings settings{.policy = parse_miss_policy(options.policy)};
  for (const PlannedCall& call : calls) settings.capacity = std::max(settings.capacity, call.tokens);
  if (!options.deadline.empty())
    settings.deadline = std::chrono::nanoseconds(
        static_cast<int64_t>(1e9 * std::min(parse_seconds("--deadline", options.deadline), 1e9)));
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

Json summary_json(const Trace& trace, const Served& served, const Percentiles& call_us) {
  const auto& [stream, lookups, layers, counters, times, is_served] = served;
  return {{"requests", trace.requests.size()},
          {"broken_rows", trace.broken_rows},
          {"chunks", stream.chunks},
          {"decode_steps", stream.decode_steps},
          {"cut_decode_steps", stream.cut_decode_steps},
          {"distinct_lengths", stream.distinct_lengths},
          {"lookups", lookups.lookups},
          {"buckets", lookups.buckets},
          {"tunings", counters.tunings},
          {"compiles", counters.compiles},
          {"compiles_at_load", counters.compiles_at_load},
          {"misses", lookups.misses},
          {"lookup_ns", {{"p50", lookups.lookup_ns.p50}, {"p99", lookups.lookup_ns.p99}}},
          {"call_us", {{"p50", call_us.p50}, {"p99", call_us.p99}}},
          {"layers", layers.layers},
          {"executed", layers.executed},
          {"verified", layers.verified},
          {"max_rel_err", layers.max_rel_err},
          {"times", times_json(times)}};
}

int replay(const Session& session, ReplayOptions& options) {
  const auto world = world_of(options);
  if (!world && !options.deadline.empty())
    bad_input(fmt::format("--deadline {}: one rank waits for nobody; add --ranks 2", options.deadline));
  apply_ranks(options);
  const double seconds = seconds_to_execute(options);
  const Trace trace = read_trace(options.trace);
  for (const std::string& problem : trace.problems)
    if (!world || !world->process || world->process->rank() == 0) warn(problem + "; left out");
  const bool is_length_given = !options.lengths.empty();
  if (!is_length_given) options.lengths = fmt::format("1..{}", kDefaultLength);
  const int threads = one_thread_count(options);
  const std::vector<autotune::TuneRequest> requests = model_requests(session.registry, options);
  check_stores_of(options);
  const auto store = open_store_of(options, StoreUse::read_existing);
  const auto device = open_device_of(options, threads);

  Served served;
  served.stream = plan_calls(session, options, trace, requests, is_length_given, *device, *store);
  if (world) serve_on_ranks(session, options, *world, seconds, *device, *store, served);
  else serve_alone(session, options, seconds, requests, *store, served);
  const Percentiles call_us = percentiles(served.layers.call_us), layer_us = percentiles(served.layers.layer_us);

  print_summary(trace, served.stream, served.lookups, served.layers, served.counters, call_us, layer_us,
                next_step("prewarm", options));
  if (options.json) {
    Json json = summary_json(trace, served, call_us);
    if (world)
      json["ranks"] = {{"world_size", world->size},
                       {"fabric", world->fabric},
                       {"layer_us", {{"p50", layer_us.p50}, {"p99", layer_us.p99}}}};
    print_json(json);
  }
  return served.is_served && served.layers.verified == served.layers.executed ? kDone : kNo;
}

int run(const Session& session, const ReplayOptions& given) {
  ReplayOptions options = given;
  enter_processes(options);
  return run_on_processes(options, [&] { return replay(session, options); });
}

}  // namespace

void add_replay(CLI::App& app, Session& session) {
  auto options = std::make_shared<ReplayOptions>();
  CLI::App& command = add_command(
      app, session, "replay", "Serve the requests of a trace: look up and plan all, execute a sample, check outputs",
      "  seqtile replay --model config.json --trace trace.csv --cache tuning.db --policy strict --execute 20s\n"
      "  seqtile replay --model config.json --trace trace.csv --cache tuning.db --lengths 1..2048 --json | tail -n 1\n"
      "  seqtile replay --model config.json --trace trace.csv --cache tuning.db --ranks 2 --fabric threads --execute "
      "20s",
      options, run);
  add_model(command, *options);
  add_lengths(command, *options);
  add_key(command, *options);
  add_ranks(command, *options);
  add_stores(command, *options);
  command.get_option("--lengths")->description("Lengths that prefill chunks may have (default: what the cache covers)");
  command.add_option("--trace", options->trace, "CSV with the columns ContextTokens and GeneratedTokens")
      ->type_name("FILE")
      ->required();
  command.add_option("--policy", options->policy, "What a missing record means")
      ->check(CLI::IsMember({"strict", "default", "nearest", "background", "tune"}))
      ->capture_default_str();
  command.add_option("--execute", options->execute, "Run decoder layers of randomly chosen calls for this time")
      ->type_name("TIME");
  command.add_option("--deadline", options->deadline, "How long a rank waits for another one (default: 60s)")
      ->type_name("TIME");
}

}  // namespace seqtile::cli
