// autotune/tuning/merge.cpp -- a neighbour's winner, taken over without a search.
// SPDX-License-Identifier: Apache-2.0
//
// The winners of the nearest tuned buckets race the bucket's own default, and the runner-up of a neighbour, at the bucket's
// middle and lo. A winner is taken over when it is not slower than the default and the upper confidence bound of its
// paired regret against every other is at most 3 %. A merge is a measurement, not a tuning.
#include <algorithm>

#include "autotune/tuning/session.h"
#include "autotune/tuning/stats.h"

namespace seqtile::autotune {
namespace {

constexpr double kRegret = 0.03, kAlpha = 0.05;
constexpr int kRounds = 6;

void add_unique(std::vector<Config>& configs, const Config& config) {
  if (std::find(configs.begin(), configs.end(), config) == configs.end()) configs.push_back(config);
}

/// The nearest bucket in one direction that a search has decided.
const cache::Record* nearest_tuned(const Item& item, size_t index, int step) {
  for (size_t i = index + step; i < item.buckets.size(); i += step)
    if (item.buckets[i].record && item.buckets[i].record->origin == cache::Origin::tuned) return &*item.buckets[i].record;
  return nullptr;
}

}  // namespace

bool TuningSession::try_merge(Item& item, size_t index) {
  BucketState& state = item.buckets[index];
  const Bucket& bucket = state.bucket;
  const cache::Record* shorter = nearest_tuned(item, index, -1);
  const cache::Record* longer = nearest_tuned(item, index, 1);
  const RankedSpace space = rank_space(item, bucket.hi, target_);
  std::vector<Config> racing{space.default_config};
  std::vector<Config> winners;
  for (const cache::Record* record : {longer, shorter})
    if (record) add_unique(winners, Config::parse(record->config_json));
  if (winners.empty()) return false;
  for (const Config& config : winners) add_unique(racing, config);

  // The best of the longer neighbour's other trials keeps the winner honest.
  if (const cache::Record* near = longer ? longer : shorter) {
    auto trials = store_.trials(item.key, kBucketVersion, near->lo, near->hi);
    std::erase_if(trials, [&](const auto& row) { return row.outcome != "ok" || row.config_json == near->config_json; });
    const auto best = std::min_element(trials.begin(), trials.end(),
                                       [](const auto& a, const auto& b) { return a.median_us < b.median_us; });
    if (best != trials.end()) add_unique(racing, Config::parse(best->config_json));
  }
  const auto compiled = runner_.compile(racing);
  for (size_t i = racing.size(); i-- > 0;)
    if (!compiled[i].ok() || !runner_.check(racing[i]).ok()) {
      if (i == 0) return false;
      std::erase(winners, racing[i]);
      racing.erase(racing.begin() + static_cast<std::ptrdiff_t>(i));
    }

  const int64_t middle = bucket.lo + (bucket.hi - bucket.lo) / 2;
  std::vector<std::vector<double>> times(racing.size()), at_middle(racing.size());
  for (const int64_t length : {middle, bucket.lo}) {
    if (length == middle && !at_middle[0].empty()) break;  // a bucket of one length
    const int rounds = middle == bucket.lo ? 2 * kRounds : kRounds;
    const auto series = runner_.measure(racing, {length, rounds, rounds, 1.0, false});
    for (size_t i = 0; i < racing.size(); ++i) {
      if (!series[i].verdict.ok()) return false;
      times[i].insert(times[i].end(), series[i].us.begin(), series[i].us.end());
      if (length == middle) at_middle[i] = series[i].us;
    }
    state.record->sliced = series[0].sliced;
  }

  const size_t none = racing.size();
  size_t chosen = none;
  double chosen_regret = kRegret;
  for (size_t c = 0; c < racing.size(); ++c) {
    if (std::find(winners.begin(), winners.end(), racing[c]) == winners.end()) continue;
    double regret = 0;
    for (size_t other = 0; other < racing.size(); ++other)
      if (other != c) regret = std::max(regret, median_upper_bound(paired_ratios(times[c], times[other]), kAlpha) - 1);
    const bool loses = median(paired_ratios(times[c], times[0])) > 1;
    if (regret <= chosen_regret && !loses) {
      chosen = c;
      chosen_regret = regret;
    }
  }
  if (chosen == none) return false;
  const Verdict verdict = runner_.check_bucket(racing[chosen], bucket);
  if (!verdict.ok()) return false;

  for (size_t i = 1; i < racing.size(); ++i) note_trial(item, make_trial(bucket, racing[i], {}, at_middle[i]));
  auto record = make_record(bucket, racing[chosen], space.hash, cache::Origin::merged, at_middle[chosen], at_middle[0]);
  record.measured_length = middle;
  record.sliced = state.record->sliced;
  record.max_rel_err = verdict.max_rel_err;
  ++report_.merges;
  runner_.keep(racing[chosen]);
  publish(item, state, std::move(record));
  return true;
}

}  // namespace seqtile::autotune
