// autotune/tuning/coverage.cpp -- the default of every bucket is timed in it: the second grade of coverage.
// SPDX-License-Identifier: Apache-2.0
//
// Operations with the most work come first, so that a budget that ends here has measured what
// takes the most time. All binaries that an operation needs are compiled at once, in parallel, before anything is
// timed.
#include <algorithm>

#include "autotune/call/problem.h"
#include "autotune/call_sizes.h"
#include "autotune/tuning/session.h"
#include "seqtile/error.h"

namespace seqtile::autotune {
namespace {

constexpr MeasurePlan kBrief{1, 5, 9, 0.03, false};
constexpr double kFlopsPerByte = 5;  // what moving a byte costs in flops, roughly

double work_of(const Item& item) {
  const Schema schema = item.op->schema(item.workload);
  double work = 0;
  for (const BucketState& state : item.buckets) {
    const auto symbols = call_symbols(*item.op, item.workload, schema, state.bucket.hi);
    const Cost cost = item.op->cost(item.workload, symbols);
    if (state.is_unmeasured()) work += std::max(cost.flops, kFlopsPerByte * (cost.bytes_read + cost.bytes_written));
  }
  return work;
}

}  // namespace

Config default_of(const Item& item, int64_t length, const Target& target) {
  const OpDef& op = *item.op;
  Config config = op.default_config(item.workload, length, target);
  if (const auto reason = op.config_space(item.workload, length, target).refusal(config))
    throw Error(ErrorCode::invalid_argument, "operation " + op.name + ": the default configuration " + config.json() +
                                                 " for length " + std::to_string(length) +
                                                 " is not in its space: " + *reason);
  return config;
}

bool is_unfit(const Verdict& verdict) {
  constexpr const char* kOutcomes[] = {"compile_error", "crash", "wrong_result", "oob_write", "nondeterministic"};
  return std::ranges::find(kOutcomes, verdict.outcome) != std::end(kOutcomes);
}

void TuningSession::measure_all() {
  std::vector<Item*> order;
  for (Item& item : items_)
    if (std::ranges::any_of(item.buckets, &BucketState::is_unmeasured)) order.push_back(&item);
  std::ranges::stable_sort(order, std::greater(), [](const Item* item) { return work_of(*item); });
  for (Item* item : order) {
    if (is_over()) return;
    measure_item(*item);
    flush();
  }
}

void TuningSession::measure_item(Item& item) {
  begin(item);
  std::vector<Config> defaults;
  for (const BucketState& state : item.buckets) {
    if (!state.is_unmeasured()) continue;
    const Config config = default_of(item, state.bucket.hi, target_);
    if (std::find(defaults.begin(), defaults.end(), config) == defaults.end()) defaults.push_back(config);
  }
  report_progress("compile " + describe(item, item.buckets[0].bucket));
  runner_.compile(defaults);
  for (BucketState& state : item.buckets) {
    if (!state.is_unmeasured()) continue;
    if (is_over()) return;
    report_progress("measure " + describe(item, state.bucket));
    cover_bucket(item, state);
  }
}

/// The bucket's own default, verified where the bucket's record is not that of the same binary.
void TuningSession::cover_bucket(Item& item, BucketState& state) {
  const Config config = default_of(item, state.bucket.hi, target_);
  // A bucket whose trials outlived their record needs the record only; its default is not a new trial.
  const auto trials = measured_trials(item, state.bucket);
  const auto known = trials.find(config.hash());
  const bool is_built = state.record && state.record->config_json == config.json();
  double max_rel_err = is_built ? state.record->max_rel_err : 0;
  Verdict verdict = is_built ? runner_.compile({&config, 1})[0] : compile_and_check(config);
  if (verdict.ok() && !is_built) {
    verdict = runner_.check_bucket(config, state.bucket);
    max_rel_err = verdict.max_rel_err;
  }
  Series series;
  if (verdict.ok()) {
    MeasurePlan plan = kBrief;
    plan.length = state.bucket.hi;
    series = runner_.measure({&config, 1}, plan)[0];
    verdict = series.verdict;
  }
  if (known == trials.end() || (known->second.outcome != "ok" && known->second.outcome != verdict.outcome))
    note_trial(item, make_trial(state.bucket, config, verdict, series.us));
  if (!verdict.ok()) {
    if (state.record && !is_unfit(verdict)) return;  // what was built serves; the next run times it
    if (is_built) refuse(item, state, verdict);
    search(item, state);  // without a default the bucket is served only if a search finds something
    drop_unfit(item, state);
    return;
  }
  auto record = make_record(state.bucket, config, no_space(), cache::Origin::fallback, series.us, series.us);
  record.sliced = series.sliced;
  record.max_rel_err = max_rel_err;
  keep(item, config);
  publish(item, state, std::move(record));
}

}  // namespace seqtile::autotune
