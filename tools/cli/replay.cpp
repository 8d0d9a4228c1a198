// tools/cli/replay.cpp -- `seqtile replay`: serves the requests of a trace and counts what that took.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <random>
#include <set>

#include "autotune/bucket.h"
#include "jit/device_profile.h"
#include "tools/cli/command.h"
#include "tools/cli/key_text.h"
#include "tools/cli/layer_runner.h"
#include "tools/cli/model_requests.h"
#include "tools/cli/output.h"
#include "tools/cli/record_times.h"

namespace seqtile::cli {
namespace {

constexpr int64_t kDefaultLength = 4096;  ///< longest chunk where nothing is recorded at all

struct ReplayOptions : Options {
  std::string trace, policy = "strict", execute;
};

/// Everything that the trace asks of the model.
struct Stream {
  std::vector<PlannedCall> calls;
  int64_t chunks = 0, decode_steps = 0, cut_decode_steps = 0, distinct_lengths = 0;
};

Stream plan_stream(const Trace& trace, const PlanLimits& limits) {
  Stream stream;
  std::set<int64_t> lengths;
  for (const TraceRequest& request : trace.requests) {
    lengths.insert(request.context);
    stream.cut_decode_steps += plan_request(request, limits, stream.calls);
  }
  for (const PlannedCall& call : stream.calls) ++(call.phase == Phase::decode ? stream.decode_steps : stream.chunks);
  stream.distinct_lengths = static_cast<int64_t>(lengths.size());
  return stream;
}

/// The longest length up to which every operation has records of all buckets: what a prefill chunk may have.
int64_t covered_length(const autotune::Registry& registry, const std::vector<ServedOperation>& operations,
                       Device& device, cache::TuningStore& store) {
  int64_t covered = autotune::kMaxLength;
  for (const ServedOperation& operation : operations) {
    if (operation.role == Role::last_row || operation.phase == Phase::decode) continue;
    const autotune::OpDef& op = registry.find(operation.workload.operation);
    const auto key = autotune::make_key(op, operation.workload, device.info(), autotune::TuneOptions{}.policy);
    int64_t next = 1;
    for (const cache::Record& record : store.records(key))
      if (record.bucket_version == autotune::kBucketVersion && record.lo == next) next = record.hi + 1;
    covered = std::min(covered, next - 1);
  }
  return covered;
}

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

LayerReport execute(const Session& session, double seconds, const std::vector<ServedOperation>& operations,
                    const std::vector<PlannedCall>& calls, Device& device, CallClock& clock) {
  LayerRunner runner(session.registry, operations, device, clock);
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
                   const EngineCounters& counters, const Percentiles& call_us, const std::string& next_prewarm) {
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
    print_line(
        fmt::format("{} decoder layers executed: {} operations, {} verified, largest relative error {:.2g}; "
                    "entry to first program p50 {:.2f} us, p99 {:.2f} us",
                    format_count(layers.layers), format_count(layers.executed), format_count(layers.verified),
                    layers.max_rel_err, call_us.p50, call_us.p99));
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

int run(const Session& session, const ReplayOptions& given) {
  ReplayOptions options = given;
  const double seconds = seconds_to_execute(options);
  const Trace trace = read_trace(options.trace);
  for (const std::string& problem : trace.problems) warn(problem + "; left out");
  const bool is_length_given = !options.lengths.empty();
  if (!is_length_given) options.lengths = fmt::format("1..{}", kDefaultLength);
  const MissPolicy policy = parse_miss_policy(options.policy);
  const int threads = one_thread_count(options);
  const std::vector<autotune::TuneRequest> requests = model_requests(session.registry, options);
  const auto store = open_store_of(options, StoreUse::read_existing);

  const auto executor = make_executor(threads);  // of a CPU, to see when a call's first program starts
  CallClock clock(*executor);
  EngineOptions engine_options{.device = options.device,
                               .threads = threads,
                               .executor = options.device == "cpu" ? &clock : nullptr,
                               .cache = store->path(),
                               .artifacts = artifacts_path(options),
                               .policy = policy};
  open_device_of(options, threads);
  const auto engine = Engine::open(engine_options, session.registry);
  std::vector<ServedOperation> operations;
  PlanLimits limits{parse_lengths("--lengths", options.lengths).hi, model_of(options).max_positions};
  for (const autotune::TuneRequest& request : requests) {
    operations.push_back(served_operation(request));
    operations.back().handle = engine->prepare(request.workload);
    if (operations.back().role == Role::attention && operations.back().phase == Phase::decode)
      limits.max_kv = std::min(limits.max_kv, request.hi);
  }
  if (const int64_t covered = covered_length(session.registry, operations, engine->device(), *store);
      !is_length_given && covered > 0)
    limits.chunk = covered;
  const Stream stream = plan_stream(trace, limits);
  const LookupReport lookups = look_up_all(operations, stream.calls);
  const bool is_served = lookups.misses == 0 || policy != MissPolicy::strict;
  LayerReport layers;
  if (is_served && seconds > 0) layers = execute(session, seconds, operations, stream.calls, engine->device(), clock);
  const EngineCounters counters = engine->counters();
  const Percentiles call_us = percentiles(layers.call_us);
  const auto times = record_times(session.registry, operations, stream.calls, engine->device(), *store);

  print_summary(trace, stream, lookups, layers, counters, call_us, next_step("prewarm", options));
  if (options.json)
    print_json({{"requests", trace.requests.size()},
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
                {"times", times_json(times)}});
  return is_served && layers.verified == layers.executed ? kDone : kNo;
}

}  // namespace

void add_replay(CLI::App& app, Session& session) {
  auto options = std::make_shared<ReplayOptions>();
  CLI::App& command = add_command(
      app, session, "replay", "Serve the requests of a trace: look up and plan all, execute a sample, check outputs",
      "  seqtile replay --model config.json --trace trace.csv --cache tuning.db --policy strict --execute 20s\n"
      "  seqtile replay --model config.json --trace trace.csv --cache tuning.db --lengths 1..2048 --json | tail -n 1",
      options, run);
  add_model(command, *options);
  add_lengths(command, *options);
  add_key(command, *options);
  add_stores(command, *options);
  command.get_option("--lengths")->description("Lengths that prefill chunks may have (default: what the cache covers)");
  command.add_option("--trace", options->trace, "CSV with the columns ContextTokens and GeneratedTokens")
      ->type_name("FILE")
      ->required();
  command
      .add_option("--policy", options->policy, "What a missing record means: strict default nearest background tune")
      ->capture_default_str();
  command.add_option("--execute", options->execute, "Run decoder layers of randomly chosen calls for this time")
      ->type_name("TIME");
}

}  // namespace seqtile::cli
