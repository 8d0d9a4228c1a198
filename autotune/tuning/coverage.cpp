// autotune/tuning/coverage.cpp -- the default configuration of every bucket: compiled, verified, measured, recorded.
// SPDX-License-Identifier: Apache-2.0
//
// Some 20 ms a bucket, so that a model's thousand buckets are served after half a minute. One binary serves many
// buckets: all that a workload needs are compiled at once, in parallel, before anything is measured.
#include <algorithm>

#include <fmt/format.h>

#include "autotune/tuning/session.h"
#include "jit/base/log.h"

namespace seqtile::autotune {
namespace {

constexpr MeasurePlan kBrief{1, 5, 9, 0.03, false};

}  // namespace

/// Binaries of records that are there: they were verified when they were recorded, and are made again from the same
/// source. A record whose configuration does not build any more is a gap.
void TuningSession::build_lacking() {
  for (Item& item : items_) {
    std::vector<Config> configs;
    for (const BucketState& state : item.buckets)
      if (state.lacks_binary) configs.push_back(Config::parse(state.record->config_json));
    if (configs.empty()) continue;
    if (is_over()) return;
    begin(item);
    report_progress("compile " + describe(item, item.buckets[0].bucket));
    const std::vector<Verdict> verdicts = runner_.compile(configs);
    size_t next = 0;
    for (BucketState& state : item.buckets) {
      if (!state.lacks_binary) continue;
      const Config& config = configs[next];
      const Verdict& verdict = verdicts[next++];
      if (verdict.ok()) {
        keep(item, config);
        state.lacks_binary = false;
      } else if (verdict.outcome == "compile_error" || verdict.outcome == "crash") {
        if (refusals_.add(config, verdict))
          log_line(LogLevel::warning, fmt::format("{}: the record is replaced, its kernel does not compile: {}",
                                                  describe(item, state.bucket), detail_of(verdict)));
        state.unfit_config = state.record->config_json;
        state.record.reset();
        state.lacks_binary = false;
      }  // else it took too long or too much memory: it may not the next time
    }
  }
}

void TuningSession::cover_all() {
  for (Item& item : items_) {
    if (is_over()) return;
    if (std::any_of(item.buckets.begin(), item.buckets.end(), [](const BucketState& s) { return !s.record; }))
      cover(item);
    flush();
  }
}

void TuningSession::cover(Item& item) {
  begin(item);
  std::vector<Config> defaults;
  for (const BucketState& state : item.buckets) {
    if (state.record) continue;
    const Config config = item.op->default_config(item.workload, state.bucket.hi, target_);
    if (std::find(defaults.begin(), defaults.end(), config) == defaults.end()) defaults.push_back(config);
  }
  report_progress("compile " + describe(item, item.buckets[0].bucket));
  runner_.compile(defaults);
  for (BucketState& state : item.buckets) {
    if (state.record) continue;
    if (is_over()) return;
    report_progress("coverage " + describe(item, state.bucket));
    cover_bucket(item, state, rank_space(item, state.bucket.hi, target_));
  }
}

void TuningSession::cover_bucket(Item& item, BucketState& state, const RankedSpace& space) {
  const Config& config = space.default_config;
  // A bucket whose trials outlived their record needs the record only; its default is not a new trial.
  const bool known = measured_trials(item, state.bucket).contains(config.hash());

  Verdict verdict = compile_and_check(config);
  if (verdict.ok()) verdict = runner_.check_bucket(config, state.bucket);
  Series series;
  const double max_rel_err = verdict.max_rel_err;
  if (verdict.ok()) {
    MeasurePlan plan = kBrief;
    plan.length = state.bucket.hi;
    series = runner_.measure({&config, 1}, plan)[0];
    verdict = series.verdict;
  }
  if (!known) note_trial(item, make_trial(state.bucket, config, verdict, series.us));
  if (!verdict.ok()) {
    search(item, state);  // without a default the bucket is served only if a search finds something
    return;
  }
  auto record = make_record(state.bucket, config, space.hash, cache::Origin::fallback, series.us, series.us);
  record.sliced = series.sliced;
  record.max_rel_err = max_rel_err;
  keep(item, config);
  publish(item, state, std::move(record));
}

}  // namespace seqtile::autotune
