// autotune/tuning/building.cpp -- every bucket gets a binary that was verified: the first and quickest coverage.
// SPDX-License-Identifier: Apache-2.0
//
// The buckets of an octave share one default, that of the octave's end, so that a model needs some dozens of binaries
// and not hundreds. A binary is verified at short lengths and at both ends of the run of buckets that share it; where
// it fails, each bucket's own default is. Times are for coverage.cpp: a record of this pass has none. What no default
// serves is searched once everything else is built.
#include <algorithm>
#include <bit>
#include <utility>

#include <fmt/format.h>

#include "autotune/tuning/session.h"
#include "jit/base/log.h"

namespace seqtile::autotune {
namespace {

/// Adjacent open buckets with one configuration, by their positions.
struct Run {
  Config config;
  std::vector<size_t> buckets;
};

/// The default of the octave's end, or of the item's where that comes first; build_run() sees whether it may serve.
Config shared_default(const Item& item, const Bucket& bucket, const Target& target) {
  const auto end = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(bucket.hi)));
  const int64_t longest = std::max(bucket.hi, std::min(end, item.max_length()));
  return item.op->default_config(item.workload, longest, target);
}

std::vector<Run> runs_of(const Item& item, const Target& target) {
  std::vector<Run> runs;
  for (size_t i = 0; i < item.buckets.size(); ++i) {
    if (item.buckets[i].record || item.buckets[i].failed) continue;
    const Config config = shared_default(item, item.buckets[i].bucket, target);
    const bool goes_on = !runs.empty() && runs.back().config == config && runs.back().buckets.back() + 1 == i;
    if (!goes_on) runs.push_back({config, {}});
    runs.back().buckets.push_back(i);
  }
  return runs;
}

}  // namespace

/// Binaries of records that are there: they were verified when they were recorded, and are made again from the same
/// source. A record whose configuration does not build any more is a gap.
void TuningSession::build_lacking() {
  for (Item& item : items_) {
    std::vector<BucketState*> lacking;
    std::vector<Config> configs;
    for (BucketState& state : item.buckets) {
      if (!state.lacks_binary) continue;
      lacking.push_back(&state);
      configs.push_back(Config::parse(state.record->config_json));
    }
    if (configs.empty()) continue;
    if (is_over()) return;
    begin(item);
    report_progress("compile " + describe(item, item.buckets[0].bucket));
    const std::vector<Verdict> verdicts = runner_.compile(configs);
    for (size_t i = 0; i < lacking.size(); ++i) {
      BucketState& state = *lacking[i];
      if (verdicts[i].ok()) keep(item, configs[i]);
      else if (is_unfit(verdicts[i])) refuse(item, state, verdicts[i]);
      else continue;  // it took too long or too much memory, and may not the next time
      state.lacks_binary = false;
    }
  }
}

/// A record that turned out not to serve: the bucket is a gap, and whatever comes next replaces the row.
void TuningSession::refuse(const Item& item, BucketState& state, const Verdict& verdict) {
  const Config config = Config::parse(state.record->config_json);
  if (refusals_.add(config, verdict))
    log_line(LogLevel::warning, fmt::format("{}: the record {} is replaced: {}, {}", describe(item, state.bucket),
                                            config.json(), verdict.outcome, detail_of(verdict)));
  flush();  // so that what is unfit is what the store has
  state.unfit_config = state.record->config_json;
  state.record.reset();
}

/// A row that nothing could replace must not serve either.
void TuningSession::drop_unfit(const Item& item, BucketState& state) {
  if (state.record || !std::exchange(state.unfit_config, std::nullopt)) return;
  store_.remove(item.key, {{kBucketVersion, state.bucket.lo, state.bucket.hi, {}}});
}

void TuningSession::build_all() {
  for (Item& item : items_) {
    if (is_over()) return;
    const std::vector<Run> runs = runs_of(item, target_);
    if (runs.empty()) continue;
    begin(item);
    std::vector<Config> configs;
    for (const Run& run : runs)
      if (std::find(configs.begin(), configs.end(), run.config) == configs.end()) configs.push_back(run.config);
    report_progress("compile " + describe(item, item.buckets[0].bucket));
    runner_.compile(configs);
    for (const Run& run : runs) {
      if (is_over()) return;
      build_run(item, run.config, run.buckets);
    }
    flush();
  }
  cover_gaps();
}

/// Verifies the binary at both ends of the run and records it in all of its buckets.
void TuningSession::build_run(Item& item, const Config& config, const std::vector<size_t>& buckets) {
  const Bucket &first = item.buckets[buckets.front()].bucket, &last = item.buckets[buckets.back()].bucket;
  report_progress("build " + describe(item, {first.lo, last.hi}));
  const std::string refusal = item.usable->refusal(config, last.hi);
  Verdict verdict = refusal.empty() ? compile_and_check(config) : Verdict{"refused", refusal};
  if (verdict.ok()) verdict = runner_.check_bucket(config, last);
  double max_rel_err = verdict.max_rel_err;
  if (verdict.ok() && first != last) verdict = runner_.check_bucket(config, first);
  max_rel_err = std::max(max_rel_err, verdict.max_rel_err);
  for (const size_t i : buckets) {
    BucketState& state = item.buckets[i];
    if (verdict.ok()) {
      publish_built(item, state, config, max_rel_err);
      continue;
    }
    build_bucket(item, state);
    if (is_over()) return;
  }
}

/// The bucket's own default; where that fails too the bucket stays a gap.
void TuningSession::build_bucket(Item& item, BucketState& state) {
  const Config config = default_of(item, state.bucket.hi, target_);
  Verdict verdict = compile_and_check(config);
  if (verdict.ok()) verdict = runner_.check_bucket(config, state.bucket);
  if (verdict.ok()) publish_built(item, state, config, verdict.max_rel_err);
}

void TuningSession::publish_built(Item& item, BucketState& state, const Config& config, double max_rel_err) {
  auto record = make_record(state.bucket, config, no_space(), cache::Origin::fallback, {}, {});
  record.max_rel_err = max_rel_err;
  keep(item, config);
  publish(item, state, std::move(record));
}

/// Buckets that no default serves are searched.
void TuningSession::cover_gaps() {
  for (Item& item : items_) {
    bool is_begun = false;
    for (BucketState& state : item.buckets) {
      if (state.record || state.failed) continue;
      if (is_over()) return;
      if (!std::exchange(is_begun, true)) begin(item);
      report_progress("search " + describe(item, state.bucket));
      cover_bucket(item, state);
    }
    flush();
  }
}

}  // namespace seqtile::autotune
