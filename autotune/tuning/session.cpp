// autotune/tuning/session.cpp -- the frame of a session: budget, progress, transactions.
// SPDX-License-Identifier: Apache-2.0
#include "autotune/tuning/session.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "jit/base/log.h"
#include "seqtile/device.h"
#include "seqtile/error.h"

namespace seqtile::autotune {
namespace {

constexpr size_t kFlushRows = 48;
constexpr double kFlushSeconds = 0.25, kProgressSeconds = 0.2;

}  // namespace

TuningSession::TuningSession(std::vector<Item> items, const Target& target, cache::TuningStore& store, Runner& runner,
                             const TuneOptions& options, Evidence evidence)
    : items_(std::move(items)),
      target_(target),
      store_(store),
      runner_(runner),
      options_(options),
      evidence_(evidence),
      start_s_(runner.now_s()) {}

void count_grade(Grade grade, TuneReport& report) {
  ++(grade == Grade::built ? report.built : grade == Grade::measured ? report.measured : report.searched);
}

TuneReport TuningSession::run() {
  for (const Item& item : items_) report_.buckets += static_cast<int64_t>(item.buckets.size());
  report_.operations = static_cast<int64_t>(items_.size());
  last_flush_s_ = runner_.now_s();
  build_lacking();
  if (evidence_ == Evidence::predicted) model_all();
  else build_all();
  remove_misplaced();
  report_.coverage_s = runner_.now_s() - start_s_;
  if (evidence_ != Evidence::predicted) measure_all();
  if (evidence_ != Evidence::predicted && !is_over()) tune_all();
  flush();
  if (evidence_ == Evidence::measured) race_all_ranks();
  flush();
  report_.covered = report_.complete = true;
  for (const Item& item : items_)
    for (const BucketState& state : item.buckets) {
      if (!state.record) report_.covered = false;
      else count_grade(grade_of(*state.record), report_);
      report_.failed_buckets += state.failed && !state.record;
      if (!state.record || !state.is_resolved() || awaits_ranks(item, state)) report_.complete = false;
    }
  report_.ranges = count_ranges(items_);
  report_.seconds = runner_.now_s() - start_s_;
  report_.interrupted = options_.interrupt && options_.interrupt->load();
  if (!report_.covered && report_.trials + num_published_ == 0 && !report_.interrupted && options_.budget_s > 0)
    throw Error(
        ErrorCode::invalid_argument,
        fmt::format("budget {:g} s is too small for one {}, getting ready took {:.2f} s; give at least {:.0f} s",
                    options_.budget_s, evidence_ == Evidence::predicted ? "operation" : "measurement", report_.seconds,
                    std::max(1.0, 2 * report_.seconds + 0.5)));
  report_progress("done", true);
  return report_;
}

bool TuningSession::is_over() {
  if (options_.interrupt && options_.interrupt->load()) return true;
  return options_.budget_s > 0 && runner_.now_s() - start_s_ >= options_.budget_s;
}

void TuningSession::report_progress(const std::string& activity, bool always) {
  const double now = runner_.now_s();
  if (!options_.progress || (!always && now - last_progress_s_ < kProgressSeconds)) return;
  last_progress_s_ = now;
  TuneProgress progress{activity, 0, 2 * report_.buckets, report_.trials, now - start_s_, 0};
  for (const Item& item : items_)
    for (const BucketState& state : item.buckets) {
      progress.done += (state.record || state.failed) + state.is_resolved();
      progress.total += item.num_ranks > 0;
      progress.done += item.num_ranks > 0 && state.is_resolved() && !awaits_ranks(item, state);
    }
  if (progress.done > 0)
    progress.left_s =
        progress.elapsed_s * static_cast<double>(progress.total - progress.done) / static_cast<double>(progress.done);
  if (options_.budget_s > 0)
    progress.left_s = std::min(progress.left_s, std::max(0.0, options_.budget_s - progress.elapsed_s));
  options_.progress(progress);
}

Evidence evidence_of(const Device& device) {
  if (profile_of(device)) return Evidence::predicted;
  return device.info().kind == "sim" ? Evidence::simulated : Evidence::measured;
}

/// Those of candidates that worked are of configurations that may serve.
std::vector<cache::TrialRow> TuningSession::usable_trials(const Item& item, const Bucket& bucket) {
  std::vector<cache::TrialRow> trials = store_.trials(item.key, kBucketVersion, bucket.lo, bucket.hi);
  std::erase_if(trials, [&](const cache::TrialRow& row) {
    if (row.outcome != "ok" && row.outcome != kModelledOutcome) return false;
    const auto config = parse_config(row.config_json);
    return !config || config->hash() != row.config_hash || !item.usable->refusal(*config, bucket.hi).empty();
  });
  return trials;
}

/// By configuration hash. What was modelled before the device was there is no measurement, nor is a time of all ranks,
/// and memory that was short may be there now.
std::map<std::string, cache::TrialRow> TuningSession::measured_trials(const Item& item, const Bucket& bucket) {
  std::map<std::string, cache::TrialRow> trials;
  for (auto& row : usable_trials(item, bucket))
    if (row.outcome != kModelledOutcome && row.outcome != kRefusedOutcome && row.outcome != "oom" &&
        (row.outcome != "ok" || row.median_us > 0))
      trials.emplace(row.config_hash, std::move(row));
  return trials;
}

Verdict TuningSession::compile_and_check(const Config& config) {
  const Verdict verdict = runner_.compile({&config, 1})[0];
  return verdict.ok() ? runner_.check(config) : verdict;
}

void TuningSession::note_trial(const Item& item, cache::TrialRow row) {
  ++report_.trials;
  if (row.outcome != "ok" && row.outcome != kModelledOutcome) {
    ++report_.failed_trials;
    if (log_enabled(LogLevel::trial))
      log_line(LogLevel::trial,
               describe(item, {row.lo, row.hi}) + " " + row.config_json + ": " + row.outcome + ", " + row.detail);
  }
  pending_trials_.emplace_back(item.key, std::move(row));
}

/// Once a binary, however many buckets it serves.
void TuningSession::keep(const Item& item, const Config& config) {
  if (!kept_.insert(item.op->name + item.workload.json() + config.json()).second) return;
  ++(runner_.keep(config) ? report_.binaries : report_.unstored_binaries);
}

void TuningSession::publish(Item& item, BucketState& state, cache::Record record, const std::string& by) {
  const bool is_default = record.origin == cache::Origin::fallback;
  cache::Record stored = record;
  if (evidence_ == Evidence::simulated && !is_default) stored.origin = cache::Origin::modelled;
  ++num_published_;
  const bool is_built = is_default && stored.samples == 0;
  pending_lines_.push_back(is_built ? fmt::format("{} built {}", describe(item, state.bucket), stored.config_json)
                                    : fmt::format("{} {} {:.1f} us {}{}", describe(item, state.bucket),
                                                  cache::origin_name(stored.origin), stored.median_us,
                                                  stored.config_json, by));
  pending_records_.push_back({item.key, std::move(stored), std::exchange(state.unfit_config, std::nullopt)});
  state.record = std::move(record);
  state.outdated = is_default;
  state.is_raced = state.lacks_binary = false;
  if (pending_records_.size() >= kFlushRows || runner_.now_s() - last_flush_s_ > kFlushSeconds) flush();
}

/// Rows that no bucket's record replaces, once every bucket of their key has one.
void TuningSession::remove_misplaced() {
  flush();
  for (Item& item : items_) {
    const bool is_covered =
        std::ranges::all_of(item.buckets, [](const BucketState& state) { return state.record.has_value(); });
    if (is_covered && store_.remove(item.key, item.misplaced)) item.misplaced.clear();
  }
}

/// Trials first: a record never stands without the trials that it was chosen from.
void TuningSession::flush() {
  bool stored = true;
  for (size_t begin = 0, end; begin < pending_trials_.size() && stored; begin = end) {
    std::vector<cache::TrialRow> rows;
    const cache::TuningKey& key = pending_trials_[begin].first;
    for (end = begin; end < pending_trials_.size() && pending_trials_[end].first.operation == key.operation &&
                      pending_trials_[end].first.workload_json == key.workload_json;
         ++end)
      rows.push_back(std::move(pending_trials_[end].second));
    stored = store_.add_trials(key, rows);
  }
  if (stored && !pending_records_.empty()) stored = store_.publish_all(pending_records_);
  if (!stored)
    throw Error(ErrorCode::io, "cannot write to " + store_.path() + ": " +
                                   (store_.status().empty() ? "locked or no space" : store_.status()) +
                                   "; everything that was acknowledged is kept");
  for (const std::string& line : pending_lines_)
    if (options_.acknowledged) options_.acknowledged(line);
  pending_trials_.clear();
  pending_records_.clear();
  pending_lines_.clear();
  last_flush_s_ = runner_.now_s();
}

}  // namespace seqtile::autotune
