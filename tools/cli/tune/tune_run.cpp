// tools/cli/tune/tune_run.cpp -- see tune_run.h.
// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/tune/tune_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "autotune/call_sizes.h"
#include "seqtile/device.h"
#include "seqtile/op.h"
#include "tools/cli/cache/binaries.h"
#include "tools/cli/model_text.h"
#include "tools/cli/output.h"

namespace seqtile::cli {
namespace {

/// Refuses bad requests before any file is opened or written. Some workloads fail only when a configuration is chosen
/// or a call is made.
void check_requests(const Session& session, const std::vector<autotune::TuneRequest>& requests, const Device& device) {
  const bool is_measured = device.info().kind != "sim" && !profile_of(device);
  for (const autotune::TuneRequest& request : requests) {
    const autotune::OpDef& op = session.registry.find(request.workload.operation);
    for (const autotune::Bucket& bucket : autotune::buckets(request.lo, request.hi))
      op.default_config(request.workload, bucket.hi, device.target());
    if (is_measured) autotune::check_memory(op, request.workload, request.hi);
  }
}

int print_plan(const Session& session, const TuneRunOptions& options,
               const std::vector<autotune::TuneRequest>& requests, const autotune::TuneOptions& tune_options) {
  Json model;
  if (!options.model.empty()) {
    const models::ModelFile file = read_model_file(options);
    print_model(file);
    model = model_json(file);
  }
  const auto store = open_store_of(options, StoreUse::peek);
  const auto rows = autotune::plan(session.registry, requests, options.device, *store, tune_options);
  Table table({"label", "operation", "buckets", "recorded", "candidates", "estimated"});
  Json list = Json::array();
  int64_t buckets = 0, candidates = 0;
  double seconds = 0;
  for (const autotune::TunePlanRow& row : rows) {
    const std::string& label = row.label.empty() ? row.operation : row.label;
    table.add({label, row.operation, format_count(row.buckets), format_count(row.recorded),
               format_count(row.candidates), format_seconds(row.estimated_s)});
    list.push_back({{"label", label},
                    {"operation", row.operation},
                    {"buckets", row.buckets},
                    {"recorded", row.recorded},
                    {"candidates", row.candidates},
                    {"estimated_seconds", row.estimated_s}});
    buckets += row.buckets;
    candidates += row.candidates;
    seconds += row.estimated_s;
  }
  table.print();
  print_line(fmt::format("{}, {}, {}; estimated {} without a budget, longer on a busy machine",
                         format_counted(rows.size(), "operation"), format_counted(buckets, "bucket"),
                         format_counted(candidates, "candidate"), format_seconds(seconds)));
  check_was_read(*store);
  if (!options.json) return kDone;
  Json json = {{"operations", rows.size()},
               {"buckets", buckets},
               {"candidates", candidates},
               {"estimated_seconds", seconds},
               {"plan", std::move(list)}};
  if (!model.is_null()) json["model"] = std::move(model);
  print_json(json);
  return kDone;
}

void print_report(const autotune::TuneReport& report, const TuneRunOptions& options, bool is_over_ranks) {
  print_line(fmt::format("{}, {} in {}: {}, {}, {} ({} failed) in {}", format_counted(report.operations, "operation"),
                         format_counted(report.buckets, "bucket"), format_counted(report.ranges, "range"),
                         format_counted(report.tunings, "tuning"), format_counted(report.merges, "merge"),
                         format_counted(report.trials, "trial"), format_count(report.failed_trials),
                         format_seconds(report.seconds)));
  print_line(fmt::format("{} built, {} measured, {} searched; covered after {}", format_counted(report.built, "bucket"),
                         format_count(report.measured), format_count(report.searched),
                         format_seconds(report.coverage_s)));
  if (report.rank_races > 0)
    print_line(fmt::format("{} timed by all ranks together", format_counted(report.rank_races, "bucket")));
  if (report.modelled > 0)
    print_line(fmt::format("{} modelled for a GPU that is not here, with {}; a run there measures them",
                           format_counted(report.modelled, "bucket"), format_counted(report.binaries, "binary")));
  if (report.failed_buckets > 0)
    print_line(fmt::format("{} without a record: no candidate works there, for the reasons above",
                           format_counted(report.failed_buckets, "bucket")));
  else if (!report.covered)
    print_line("Coverage is not whole: some buckets have no record yet. Run the command again; it goes on from here.");
  else if (!report.complete)
    print_line(fmt::format("Every bucket has a record; some are not tuned yet{}. Run again to go on.",
                           is_over_ranks ? ", or not timed by all ranks" : ""));
  if (options.json)
    print_json({{"operations", report.operations},
                {"buckets", report.buckets},
                {"ranges", report.ranges},
                {"tunings", report.tunings},
                {"merges", report.merges},
                {"rank_races", report.rank_races},
                {"modelled", report.modelled},
                {"grades", {{"built", report.built}, {"measured", report.measured}, {"searched", report.searched}}},
                {"binaries", report.binaries},
                {"unstored_binaries", report.unstored_binaries},
                {"trials", report.trials},
                {"failed_trials", report.failed_trials},
                {"seconds", report.seconds},
                {"coverage_seconds", report.coverage_s},
                {"failed_buckets", report.failed_buckets},
                {"covered", report.covered},
                {"complete", report.complete},
                {"interrupted", report.interrupted},
                {"warnings", options.warnings}});
}

/// Tells of binaries of decisions, made in this run or an earlier one, that are not in the store. The exit code tells
/// of a store that takes none; a sound store may lack the binaries of a tuning store that was shipped without them.
int tell_of_missing(int64_t missing, const TuneRunOptions& options, const cache::ArtifactDb& artifacts) {
  const std::string build =
      fmt::format("`seqtile cache build --cache {} --artifacts {}`", tuning_path(options), artifacts_path(options));
  const std::string status = artifacts.status();
  if (status.empty()) {
    warn(fmt::format("binaries of other decisions that {} names and {} lacks: {}; {} compiles them",
                     tuning_path(options), artifacts_path(options), format_count(missing), build));
    return kDone;
  }
  warn(fmt::format("not stored: {} of the binaries that {} names ({}); after a repair {} compiles them",
                   format_count(missing), tuning_path(options), status, build));
  return kMachine;
}

}  // namespace

void add_tune_run(CLI::App& app, TuneRunOptions& options) {
  app.add_option("--budget", options.budget, "Stop measuring after this time, for example 120s (default: none)")
      ->type_name("TIME");
  app.add_option("--strategy", options.strategy, "Search algorithm for candidates")
      ->check(CLI::IsMember({"exhaustive", "topk", "halving", "evolutionary"}))
      ->capture_default_str();
  app.add_flag("--dry-run", options.dry_run,
               "Print operations, buckets, candidates and estimated time; measure nothing");
}

int tune_run(const Session& session, const TuneRunOptions& options, const char* title,
             const std::vector<autotune::TuneRequest>& requests, const std::function<void()>& finish) {
  autotune::TuneOptions tune_options;
  if (!options.budget.empty()) tune_options.budget_s = parse_seconds("--budget", options.budget);
  tune_options.strategy = options.strategy;
  const auto device = open_device_of(options, requests.at(0).workload.threads);
  check_requests(session, requests, *device);
  if (options.dry_run) return print_plan(session, options, requests, tune_options);

  install_interrupt_handler();
  tune_options.interrupt = &interrupt_flag();
  const auto store = open_store_of(options, StoreUse::write);
  const auto artifacts = open_artifacts_of(options);
  autotune::TuneReport report;
  {
    Progress progress(title);
    tune_options.progress = [&](const autotune::TuneProgress& state) { progress.update(state); };
    tune_options.acknowledged = [&](const std::string& line) { progress.acknowledge(line); };
    report = autotune::tune(session.registry, requests, options.device, *store, *artifacts, tune_options);
  }
  if (!report.interrupted)
    report.unstored_binaries = find_binaries(session.registry, *store, artifacts.get(), *device).remaining();
  if (finish && report.covered && !report.interrupted) finish();
  const bool is_over_ranks = std::any_of(requests.begin(), requests.end(), [](const autotune::TuneRequest& request) {
    return request.workload.fields.contains("world_size");
  });
  print_report(report, options, is_over_ranks);
  if (report.interrupted) return interrupted_exit_code();
  const int missing = report.unstored_binaries > 0 ? tell_of_missing(report.unstored_binaries, options, *artifacts) : 0;
  return missing != kDone ? missing : report.covered ? kDone : kNo;
}

}  // namespace seqtile::cli
