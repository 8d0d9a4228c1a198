// autotune/tuning/merge.cpp -- a neighbour's winner, taken over without a search.
// SPDX-License-Identifier: Apache-2.0
//
// The winners of the nearest tuned buckets race the bucket's own default, and the runner-up of a neighbour, at the
// bucket's middle and lo. A winner is taken over when it is not slower than the default and the upper confidence bound
// of its paired regret against every other is at most 3 %. Where a neighbour's search kept its default, the bucket's
// own default may be taken in the same way: it is the same decision. A merge is a measurement, not a tuning.
#include <algorithm>

#include "autotune/tuning/session.h"
#include "autotune/worker/stats.h"

namespace seqtile::autotune {
namespace {

constexpr double kRegret = 0.03, kRegretAlpha = 0.05;
constexpr double kHopeless = 0.10;  // median regret at the middle from which lo is not looked at
constexpr int kRounds = 6;

/// The configurations that race for a bucket; the default comes first.
struct Race {
  std::vector<Config> configs;
  std::vector<bool> may_win;
  std::vector<std::vector<double>> us, us_at_middle;
  bool sliced = false;

  void add(const Config& config, bool wins) {
    const auto at = std::find(configs.begin(), configs.end(), config);
    if (at == configs.end()) {
      configs.push_back(config);
      may_win.push_back(wins);
    } else if (wins) {
      may_win[static_cast<size_t>(at - configs.begin())] = true;
    }
  }
  void remove(size_t i) {
    configs.erase(configs.begin() + static_cast<std::ptrdiff_t>(i));
    may_win.erase(may_win.begin() + static_cast<std::ptrdiff_t>(i));
  }
  /// Upper bound of candidate `c`'s regret against all others, or its median where `alpha` is 0.5.
  double regret(size_t c, double alpha) const {
    double worst = 0;
    for (size_t other = 0; other < configs.size(); ++other) {
      if (other == c) continue;
      const auto ratios = paired_ratios(us[c], us[other]);
      worst = std::max(worst, (alpha < 0.5 ? median_upper_bound(ratios, alpha) : median(ratios)) - 1);
    }
    return worst;
  }
};

/// The nearest bucket in one direction that a search has decided.
const cache::Record* nearest_tuned(const Item& item, size_t index, int step) {
  for (size_t i = index + step; i < item.buckets.size(); i += step)
    if (item.buckets[i].record && item.buckets[i].record->origin == cache::Origin::tuned)
      return &*item.buckets[i].record;
  return nullptr;
}

/// `trials`: of the nearest of the two neighbours.
Race line_up(const Item& item, const cache::Record* longer, const cache::Record* shorter, const Config& default_config,
             std::vector<cache::TrialRow> trials, const Target& target) {
  Race race;
  race.add(default_config, false);
  for (const cache::Record* record : {longer, shorter}) {
    if (!record) continue;
    const Config config = Config::parse(record->config_json);
    race.add(config, true);
    if (config == item.op->default_config(item.workload, record->hi, target)) race.add(default_config, true);
  }
  // The best of a neighbour's other trials keeps the winners honest.
  const cache::Record* near = longer ? longer : shorter;
  std::erase_if(trials, [&](const auto& row) {
    return row.outcome != "ok" || row.median_us <= 0 || row.config_json == near->config_json;
  });
  const auto best = std::min_element(trials.begin(), trials.end(),
                                     [](const auto& a, const auto& b) { return a.median_us < b.median_us; });
  if (best != trials.end()) race.add(Config::parse(best->config_json), false);
  return race;
}

/// Measures at the middle, then at lo. False when a candidate failed, or when the middle alone refutes every winner.
bool run_race(Runner& runner, const Bucket& bucket, Race& race) {
  const int64_t middle = bucket.lo + (bucket.hi - bucket.lo) / 2;
  const int rounds = middle == bucket.lo ? 2 * kRounds : kRounds;
  race.us.resize(race.configs.size());
  for (const int64_t length : {middle, bucket.lo}) {
    const auto series = runner.measure(race.configs, {length, rounds, rounds, 1.0, false});
    for (size_t i = 0; i < series.size(); ++i) {
      if (!series[i].verdict.ok()) return false;
      race.us[i].insert(race.us[i].end(), series[i].us.begin(), series[i].us.end());
    }
    if (length != middle) break;
    race.us_at_middle = race.us;
    race.sliced = series[0].sliced;
    if (middle == bucket.lo) break;  // a bucket of one or two lengths
    bool hopeful = false;
    for (size_t c = 0; c < race.configs.size(); ++c) hopeful |= race.may_win[c] && race.regret(c, 0.5) < kHopeless;
    if (!hopeful) return false;
  }
  return true;
}

}  // namespace

bool TuningSession::try_merge(Item& item, size_t index) {
  BucketState& state = item.buckets[index];
  const Bucket& bucket = state.bucket;
  const RankedSpace space = rank_space(item, bucket.hi, target_);
  const cache::Record* longer = nearest_tuned(item, index, 1);
  const cache::Record* shorter = nearest_tuned(item, index, -1);
  if (!longer && !shorter) return false;
  const cache::Record& near = longer ? *longer : *shorter;
  Race race = line_up(item, longer, shorter, space.default_config, usable_trials(item, {near.lo, near.hi}), target_);
  if (std::find(race.may_win.begin(), race.may_win.end(), true) == race.may_win.end()) return false;
  const auto compiled = runner_.compile(race.configs);
  for (size_t i = race.configs.size(); i-- > 0;)
    if (!compiled[i].ok() || !runner_.check(race.configs[i]).ok()) {
      if (i == 0) return false;
      race.remove(i);
    }
  if (!run_race(runner_, bucket, race)) return false;

  const size_t none = race.configs.size();
  size_t chosen = none;
  double chosen_regret = kRegret;
  for (size_t c = 0; c < none; ++c) {
    if (!race.may_win[c] || median(paired_ratios(race.us[c], race.us[0])) > 1) continue;
    const double regret = race.regret(c, kRegretAlpha);
    if (regret > chosen_regret) continue;
    chosen = c;
    chosen_regret = regret;
  }
  if (chosen == none) return false;
  const Config& config = race.configs[chosen];
  const Verdict verdict = runner_.check_bucket(config, bucket);
  if (!verdict.ok()) return false;

  for (size_t i = 1; i < none; ++i) note_trial(item, make_trial(bucket, race.configs[i], {}, race.us_at_middle[i]));
  auto record =
      make_record(bucket, config, space.hash, cache::Origin::merged, race.us_at_middle[chosen], race.us_at_middle[0]);
  record.measured_length = bucket.lo + (bucket.hi - bucket.lo) / 2;
  record.sliced = race.sliced;
  record.max_rel_err = verdict.max_rel_err;
  ++report_.merges;
  keep(item, config);
  publish(item, state, std::move(record));
  return true;
}

}  // namespace seqtile::autotune
