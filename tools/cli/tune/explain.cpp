// tools/cli/tune/explain.cpp -- `seqtile explain`: shows the record that answers a length, or the reason why none does.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "autotune/engine/usable.h"
#include "autotune/key_difference.h"
#include "autotune/keys.h"
#include "autotune/nearest_bucket.h"
#include "autotune/tuning/refusals.h"
#include "seqtile/compiler.h"
#include "seqtile/device.h"
#include "seqtile/op.h"
#include "seqtile/tuner.h"
#include "tools/cli/command.h"
#include "tools/cli/key_text.h"
#include "tools/cli/output.h"
#include "tools/cli/ranks/ranks.h"
#include "tools/cli/tune/explain.h"

namespace seqtile::cli {
namespace {

constexpr size_t kRunnerUps = 5;

struct Answer {
  std::string origin, reason;
  autotune::Config config;
  double median_us = 0, default_us = 0;
  bool is_recorded = false;
};

/// The command that tunes what these options name: an operation, or a model at one length.
std::string tuning_step(Options options, const std::string& strategy = "") {
  if (options.model.empty()) return next_step("tune", options, strategy);
  options.lengths = options.length + ".." + options.length;
  options.length.clear();
  return next_step("prewarm", options, strategy);
}

bool has_worked(const cache::TrialRow& trial) { return trial.outcome == "ok" || trial.outcome == "modelled"; }

/// The step that may help after a tuning that refused every candidate of a bucket, where the same tuning once more
/// would not. `tried` has the hashes of the candidates.
std::string step_after_refusals(const autotune::ConfigSpace& space, const std::vector<cache::TrialRow>& trials,
                                const std::set<std::string>& tried, bool is_modelled, Options options) {
  if (is_modelled) {
    const std::string elsewhere = tuning_step(options);
    options.device = "cuda";
    return fmt::format(
        "where the assembler refuses them, set SEQTILE_PTXAS to another, or to none, and run {}; on the "
        "GPU {} tries all of them again",
        elsewhere, tuning_step(options));
  }
  if (std::ranges::any_of(trials, [](const cache::TrialRow& trial) { return trial.outcome == "oom"; }))
    return fmt::format("with more free memory {} tries again those that ran out of it", tuning_step(options));
  const auto configs = space.enumerate();
  const auto others =
      std::ranges::count_if(configs, [&](const auto& config) { return !tried.contains(config.hash()); });
  if (others > 0) return fmt::format("{} tries the {} others", tuning_step(options, "exhaustive"), others);
  return "no other configuration is left to try; another --dtype, --device or value of --set has other kernels";
}

/// Says what a tuning refused and why, if it refused every candidate of the bucket, and the next step; else the step
/// alone.
std::string step_without_record(const autotune::OpDef& op, const autotune::Workload& workload,
                                const autotune::Bucket& bucket, const Device& device,
                                const std::vector<cache::TrialRow>& trials, const Options& options) {
  autotune::Refusals refusals;
  std::set<std::string> tried;
  for (const cache::TrialRow& trial : trials) {
    const auto config = autotune::parse_config(trial.config_json);
    if (!config) continue;
    tried.insert(config->hash());
    refusals.add(*config, {trial.outcome, trial.detail});
  }
  if (tried.empty() || std::ranges::any_of(trials, has_worked)) return "run " + tuning_step(options);
  const autotune::ConfigSpace space = op.config_space(workload, bucket.hi, device.target());
  return fmt::format("tuning has refused every one of {}, most often: {}; {}",
                     format_counted(tried.size(), "candidate"), refusals.main_reason(),
                     step_after_refusals(space, trials, tried, profile_of(device) != nullptr, options));
}

/// The reason of a modelled decision; the trial of its configuration has the details.
std::string modelled_reason(const cache::Record& record, const std::vector<cache::TrialRow>& trials, Options options) {
  std::string reason = fmt::format("predicted for length {}: {} (default {})", record.measured_length,
                                   format_us(record.median_us), format_us(record.default_us));
  for (const cache::TrialRow& trial : trials)
    if (trial.config_json == record.config_json && !trial.detail.empty()) reason += "; " + trial.detail;
  options.device = "cuda";
  return reason + "; nothing was measured; on the GPU " + tuning_step(options) + " measures it";
}

/// The result of all ranks, followed by the trial's own detail.
std::string detail_of(const cache::TrialRow& trial) {
  if (trial.ranks == 0) return trial.detail;
  std::string text = fmt::format("{} all {} ranks", trial.chosen ? "chosen by" : "on", trial.ranks);
  if (trial.ranks_us > 0)
    text += fmt::format(": {} (20 to 80 %: {} to {})", format_us(trial.ranks_us), format_us(trial.ranks_p20_us),
                        format_us(trial.ranks_p80_us));
  return trial.detail.empty() ? text : text + ": " + trial.detail;
}

std::string reason_of(const cache::Record& record, const std::vector<cache::TrialRow>& trials) {
  if (record.samples == 0) return "built and verified, not measured yet";
  std::string reason = fmt::format("measured at length {}: {} (20 to 80 %: {} to {}; {} samples; default {})",
                                   record.measured_length, format_us(record.median_us), format_us(record.p20_us),
                                   format_us(record.p80_us), record.samples, format_us(record.default_us));
  if (record.sliced) reason += "; on a slice of the grid";
  if (record.noisy) reason += "; the machine was noisy";
  for (const cache::TrialRow& trial : trials)
    if (trial.config_json == record.config_json && !detail_of(trial).empty()) reason += "; " + detail_of(trial);
  return reason;
}

/// The record of a bucket, or the reason why it may not serve.
struct Found {
  std::optional<cache::Record> record;  ///< the record that may serve
  std::string lack;                     ///< the part of that record's binary that is compiled again at load
  std::string refusal;  ///< reason why the present record may not serve; empty: the bucket has no record
};

/// Judges the record as the engine does, which compiles a binary that is not there.
autotune::Judgement judge(autotune::Usability& usable, const cache::Record& record, Device& device,
                          ArtifactStore& artifacts) {
  autotune::Judgement judgement = usable.judge(record, device, artifacts);
  if (!judgement.is_usable() || judgement.lack.empty()) return judgement;
  try {
    usable.build(judgement.config);
  } catch (const Error& error) {
    judgement.refusal = fmt::format("its kernel does not compile: {}", error.what());
  }
  return judgement;
}

Found find_record(autotune::Usability& usable, const autotune::Bucket& bucket, const cache::TuningKey& key,
                  cache::TuningStore& store, Device& device, ArtifactStore& artifacts) {
  Found found;
  std::vector<cache::BadRecord> bad;
  for (cache::Record& record : store.records(key, &bad)) {
    if (record.lo > bucket.hi || record.hi < bucket.lo) continue;
    const autotune::Judgement judgement = judge(usable, record, device, artifacts);
    found.refusal = judgement.refusal;
    if (!judgement.is_usable()) continue;
    found.record = std::move(record), found.lack = judgement.lack;
    return found;
  }
  for (const cache::BadRecord& row : bad)
    if (row.lo <= bucket.hi && row.hi >= bucket.lo && found.refusal.empty()) found.refusal = row.reason;
  return found;
}

/// The record that serves the bucket under the miss policy "nearest".
std::optional<cache::Record> find_nearest(autotune::Usability& usable, const autotune::Bucket& bucket,
                                          std::vector<cache::Record> records, Device& device,
                                          ArtifactStore& artifacts) {
  std::map<int64_t, cache::Record> by_bucket;
  for (cache::Record& record : records) by_bucket.try_emplace(autotune::bucket_index(record.lo), std::move(record));
  while (const auto near = autotune::nearest_recorded(autotune::bucket_index(bucket.lo),
                                                      [&](int64_t at) { return by_bucket.contains(at); })) {
    cache::Record& record = by_bucket.at(*near);
    if (judge(usable, record, device, artifacts).is_usable()) return std::move(record);
    by_bucket.erase(*near);
  }
  return std::nullopt;
}

/// The engine's answer under the miss policy "nearest".
Answer answer_without_record(const autotune::OpDef& op, const autotune::Workload& workload,
                             const autotune::Bucket& bucket, const Target& target, const cache::TuningKey& key,
                             cache::TuningStore& store, const std::string& refusal,
                             const std::optional<cache::Record>& near, const std::string& next) {
  const std::string step = "; " + next;
  const std::string refused = refusal.empty() ? "" : "the bucket's record does not serve: " + refusal;
  if (near)
    return {"nearest " + std::string(cache::origin_name(near->origin)),
            fmt::format("{}; nearest is {}{}", refused.empty() ? "the bucket has no record" : refused,
                        format_bucket(near->lo, near->hi), step),
            autotune::Config::parse(near->config_json)};
  Answer answer{"default", "", op.default_config(workload, autotune::octave_end(bucket), target)};
  const auto difference = refusal.empty() ? autotune::key_difference(store, key) : std::vector<std::string>{};
  answer.reason = !refused.empty()     ? refused
                  : difference.empty() ? "the file has no record"
                                       : "no record of this key; nearest differs in ";
  for (size_t i = 0; i < difference.size(); ++i) answer.reason += (i ? "; " : "") + difference[i];
  answer.reason += step;
  return answer;
}

Answer answer_of(const cache::Record& record, const std::vector<cache::TrialRow>& trials, const std::string& lack,
                 const Options& options, cache::ArtifactDb& artifacts) {
  const bool is_modelled = record.origin == cache::Origin::modelled;
  std::string reason = is_modelled ? modelled_reason(record, trials, options) : reason_of(record, trials);
  if (!lack.empty()) reason += "; " + lack + ", it is compiled at load; " + build_step(options, artifacts);
  return {std::string(cache::origin_name(record.origin)),
          reason,
          autotune::Config::parse(record.config_json),
          record.median_us,
          record.default_us,
          true};
}

Json print_runner_ups(const Answer& answer, std::vector<cache::TrialRow> trials) {
  // Trials are compared with trials, because a record's own time may be the time of all ranks. A winner that one
  // process has not timed has no ratio.
  double winner_us = answer.median_us;
  for (const cache::TrialRow& trial : trials)
    if (autotune::parse_config(trial.config_json) == answer.config) winner_us = trial.median_us;
  std::erase_if(trials, [](const cache::TrialRow& trial) { return !has_worked(trial) || trial.median_us <= 0; });
  std::sort(trials.begin(), trials.end(), [](const auto& a, const auto& b) { return a.median_us < b.median_us; });
  Table table({"  runner-up", "median", "times the winner", "detail"});
  Json list = Json::array();
  for (const cache::TrialRow& trial : trials) {
    const auto config = autotune::parse_config(trial.config_json);
    if (!config || *config == answer.config || list.size() == kRunnerUps) continue;
    const double ratio = winner_us > 0 ? trial.median_us / winner_us : 0;
    table.add({"  " + format_fields(*config), format_us(trial.median_us),
               ratio > 0 ? fmt::format("{:.2f}", ratio) : "-", detail_of(trial)});
    list.push_back({{"config", fields_json(*config)},
                    {"median_us", trial.median_us},
                    {"ranks", trial.ranks},
                    {"ranks_us", trial.ranks_us},
                    {"detail", detail_of(trial)}});
  }
  if (table.empty()) return list;
  table.print();
  if (std::ranges::any_of(trials, [](const cache::TrialRow& trial) { return trial.outcome == "ok"; }))
    print_line(
        "  times the winner: ratio of the medians of all rounds; tuning decides by the ratios within each round");
  return list;
}

/// Prints the failed candidates, with the reason.
Json print_refused(const std::vector<cache::TrialRow>& trials) {
  Table table({"  refused", "outcome", "reason"});
  Json list = Json::array();
  for (const cache::TrialRow& trial : trials) {
    if (has_worked(trial)) continue;
    const auto config = autotune::parse_config(trial.config_json);
    if (!config) continue;
    table.add({"  " + format_fields(*config), trial.outcome, detail_of(trial)});
    list.push_back({{"config", fields_json(*config)}, {"outcome", trial.outcome}, {"detail", detail_of(trial)}});
  }
  if (!table.empty()) table.print();
  return list;
}

/// The way a GPU's code computes products, and the reason if it does not use the GPU's own instructions; empty for
/// kernels without products. The PTX has the answer, so that neither ptxas nor a stored binary is needed.
std::string loop_of(const autotune::OpDef& op, const autotune::Workload& workload, const autotune::Config& config,
                    Target target) {
  if (!target.is_gpu()) return {};
  target.cubin_arch.clear();
  try {
    return compile(*autotune::build_kernel(op, workload, config, target), target).gpu.loop;
  } catch (const Error& error) {
    return fmt::format("unknown: {}", error.what());
  }
}

}  // namespace

Explained explain_workload(const Session& session, const Options& options, const autotune::Workload& workload,
                           int64_t length) {
  const autotune::OpDef& op = session.registry.find(workload.operation);
  const auto device = open_device_of(options, workload.threads);
  const auto store = open_store_of(options, StoreUse::read_existing);
  const autotune::Bucket bucket = autotune::bucket(length);
  const cache::TuningKey key = autotune::make_key(op, workload, device->info(), autotune::TuneOptions{}.policy);
  const auto artifacts = open_existing_artifacts_of(options);
  autotune::Usability usable(op, workload, device->target());
  const Found found = find_record(usable, bucket, key, *store, *device, *artifacts);
  const auto trials = store->trials(key, autotune::kBucketVersion, bucket.lo, bucket.hi);
  std::optional<cache::Record> near;
  if (!found.record)
    near =
        find_nearest(usable, bucket, usable_records(op, workload, device->target(), *store, key), *device, *artifacts);
  const Answer answer =
      found.record ? answer_of(*found.record, trials, found.lack, options, *artifacts)
                   : answer_without_record(op, workload, bucket, device->target(), key, *store, found.refusal, near,
                                           step_without_record(op, workload, bucket, *device, trials, options));
  check_was_read(*store);

  print_line(fmt::format("{} {}, length {}", op.name, workload_fields(key).json(), length));
  print_line("  bucket  " + format_bucket(bucket.lo, bucket.hi));
  print_line("  origin  " + answer.origin);
  print_line("  config  " + format_fields(answer.config));
  print_line("  reason  " + answer.reason);
  const std::string loop = loop_of(op, workload, answer.config, device->target());
  if (!loop.empty()) print_line("  loop of products: " + loop);
  const Json runner_ups = print_runner_ups(answer, trials), refused = print_refused(trials);
  return {{{"operation", op.name},
           {"length", length},
           {"bucket", {bucket.lo, bucket.hi}},
           {"origin", answer.origin},
           {"config", fields_json(answer.config)},
           {"median_us", answer.median_us},
           {"default_us", answer.default_us},
           {"reason", answer.reason},
           {"refusal", found.refusal},
           {"lack", found.lack},
           {"loop", loop},
           {"runner_ups", runner_ups},
           {"refused", refused}},
          answer.is_recorded};
}

namespace {

int run(const Session& session, const Options& given) {
  Options options = given;
  if (!options.model.empty() && !options.ranks.empty() + !options.fabric.empty() > 0)
    bad_input("--ranks, --fabric: go with an operation; `seqtile prove` checks all operations of a model");
  if (!options.model.empty()) return explain_model(session, options);
  if (options.operation.empty()) bad_input("explain: give an operation and --length, or --model FILE");
  if (options.length.empty()) bad_input("--length is required with an operation");
  set_rank_fields(session, options);
  const autotune::Workload workload = workload_of(session.registry, options, one_thread_count(options));
  const Explained explained = explain_workload(session, options, workload, parse_length("--length", options.length));
  if (options.json) print_json(explained.json);
  return explained.is_recorded ? kDone : kNo;
}

}  // namespace

void add_explain(CLI::App& app, Session& session) {
  auto options = std::make_shared<Options>();
  CLI::App& command = add_command(
      app, session, "explain", "Print the bucket, configuration and origin that answer a length, and the runners-up",
      "  seqtile explain linear --set n=4096 --set k=4096 --dtype bf16 --length 300 --cache tuning.db\n"
      "  seqtile explain rms_norm --set n=576 --length 4096 --json | tail -n 1\n"
      "  seqtile explain fused_allgather_and_linear --set n=512 --set k=512 --ranks 2 --length 16 --cache tuning.db\n"
      "  seqtile explain --model config.json\n"
      "  seqtile explain --model config.json --length 300 --cache tuning.db",
      options, run);
  add_operation(command, *options);
  CLI::Option* operation = command.get_option("operation")->required(false);
  command
      .add_option(
          "--model", options->model,
          "Instead of an operation: describe a Hugging Face config.json; with --length also answer for each of its "
          "operations")
      ->type_name("FILE")
      ->excludes(operation)
      ->excludes(command.get_option("--set"));
  add_strict_model(command, options->strict_model);
  add_key(command, *options);
  add_ranks(command, *options);
  add_length(command, *options);
  add_stores(command, *options);
}

}  // namespace seqtile::cli
