// autotune/tuning/search.cpp -- a search among the candidates of one bucket.
// SPDX-License-Identifier: Apache-2.0
//
// The baseline (the recorded configuration, at first the default) runs in every round beside the candidates; what
// counts is the ratio of a candidate's time to the baseline's in the same round. Candidates are compared at the
// bucket's hi; the best two are then verified there and race the baseline again, at the middle and at lo: fresh
// rounds, so that the luck that made a candidate the best of many does not count. It replaces the baseline only if it
// was faster by more than 1 % in every fresh round (seven rounds: error below 1 %; three for one that was 7 % faster in
// all rounds before). Where a disturbed round stood in the way of a candidate whose median was faster, eight more
// follow, and it needs all rounds but one. Among winners within 1 % the smaller hash is taken.
#include <algorithm>
#include <cmath>
#include <set>

#include <fmt/format.h>

#include "autotune/strategies/strategy.h"
#include "autotune/tuning/session.h"
#include "autotune/worker/stats.h"
#include "jit/base/log.h"

namespace seqtile::autotune {
namespace {

constexpr double kAlpha = 0.01, kClear = 0.07;
constexpr size_t kFinalists = 2;
constexpr double kFinalistSpread = 0.03;  // the second is let in up to this far behind the first
constexpr int kFirstRounds = 5, kClearRounds = 3;

int64_t bucket_seed(int64_t seed, const Item& item, const Bucket& bucket) {
  uint64_t mixed = static_cast<uint64_t>(seed);
  for (const char c : item.key.operation + item.key.workload_json)
    mixed = mixed * 1099511628211u + static_cast<unsigned char>(c);
  return static_cast<int64_t>(mixed * 31 + static_cast<uint64_t>(bucket.lo));
}

}  // namespace

/// A candidate that was measured.
struct TuningSession::Found {
  Config config;
  double relative = 1;  ///< time over the baseline's
  double bound = 1;     ///< its upper bound
  std::vector<double> us;
  bool sliced = false;
};

/// What a search has learnt.
struct TuningSession::Measured {
  std::optional<Config> baseline;  ///< absent while no candidate works
  bool is_recorded = false;        ///< the baseline is recorded (and verified in this bucket)
  std::vector<double> baseline_us;
  double recalled_us = 0;  ///< the baseline's time in an earlier run; 0: there is none
  bool sliced = false;
  std::map<std::string, Found> found;            ///< by config hash
  std::map<std::string, cache::TrialRow> known;  ///< trials of earlier runs
  std::set<std::string> tried;
  double max_rel_err = 0;  ///< of the finalists
  Refusals refusals;       ///< all failures, for people
};

/// What was chosen without the device competes as the first of the candidates; the baseline is the default, measured
/// now. The store keeps the modelled record until the search has ended.
void TuningSession::start_from_default(Item& item, BucketState& state, RankedSpace& space) {
  const auto chosen = std::find(space.configs.begin(), space.configs.end(), Config::parse(state.record->config_json));
  if (chosen != space.configs.end()) std::rotate(space.configs.begin(), chosen, chosen + 1);
  state.record.reset();
  const Config& config = space.default_config;
  Verdict verdict = compile_and_check(config);
  if (verdict.ok()) verdict = runner_.check_bucket(config, state.bucket);
  const double max_rel_err = verdict.max_rel_err;
  Series series;
  if (verdict.ok()) {
    series = runner_.measure({&config, 1}, {state.bucket.hi, kFirstRounds, kFirstRounds, 0.03, false})[0];
    verdict = series.verdict;
  }
  note_trial(item, make_trial(state.bucket, config, verdict, series.us));
  if (!verdict.ok()) return;
  state.record = make_record(state.bucket, config, space.hash, cache::Origin::fallback, series.us, series.us);
  state.record->max_rel_err = max_rel_err;
  state.record->sliced = series.sliced;
}

void TuningSession::search(Item& item, BucketState& state) {
  RankedSpace space = rank_space(item, state.bucket.hi, target_);
  if (state.record && state.record->origin == cache::Origin::modelled && evidence_ == Evidence::measured)
    start_from_default(item, state, space);
  Measured measured;
  measured.known = measured_trials(item, state.bucket);
  if (state.record) {
    measured.baseline = Config::parse(state.record->config_json);
    measured.is_recorded = compile_and_check(*measured.baseline).ok();
    if (!measured.is_recorded) measured.baseline.reset();
  }
  recall(state, space, measured);
  // A search that was cut short stays open: its trials are stored and the next run goes on from them.
  if (!search_batches(item, state, space, measured) && state.record) return;
  decide(item, state, space, measured);
}

/// Trials of a search that was cut short compete again, by their stored medians.
void TuningSession::recall(const BucketState& state, const RankedSpace& space, Measured& measured) const {
  for (const auto& [hash, row] : measured.known) measured.tried.insert(hash);
  if (!measured.baseline || state.record->origin != cache::Origin::fallback) return;
  const auto base = measured.known.find(measured.baseline->hash());
  if (base == measured.known.end() || base->second.median_us <= 0) return;
  measured.recalled_us = base->second.median_us;
  for (const Config& config : space.configs) {
    const auto row = measured.known.find(config.hash());
    if (row == measured.known.end() || row->second.outcome != "ok" || config == *measured.baseline) continue;
    const double relative = row->second.median_us / base->second.median_us;
    measured.found.emplace(row->first, Found{config, relative, relative, {row->second.median_us}, false});
  }
}

bool TuningSession::search_batches(Item& item, BucketState& state, const RankedSpace& space, Measured& measured) {
  const auto strategy = make_strategy(options_.strategy, space.configs, bucket_seed(options_.seed, item, state.bucket));
  std::map<std::string, size_t> positions;
  for (size_t i = 0; i < space.configs.size(); ++i) positions[space.configs[i].hash()] = i;
  const std::string own = measured.baseline ? measured.baseline->hash() : "";
  const auto baseline_row = measured.known.find(own);
  for (const auto& [hash, row] : measured.known) {
    const auto at = positions.find(hash);
    if (at == positions.end()) continue;
    const double base = baseline_row != measured.known.end() ? baseline_row->second.median_us : 0;
    strategy->tell(at->second, row.outcome == "ok" && base > 0 ? std::optional(row.median_us / base) : std::nullopt);
  }
  if (positions.contains(own)) strategy->tell(positions[own], 1.0);

  while (true) {
    const Batch batch = strategy->ask();
    if (batch.candidates.empty()) return true;
    if (is_over()) return false;
    std::vector<Config> configs;
    for (const size_t i : batch.candidates)
      if (!measured.baseline || space.configs[i] != *measured.baseline) configs.push_back(space.configs[i]);
    measure_batch(item, state, std::move(configs), batch.rounds, measured);
    for (const size_t i : batch.candidates) {
      const auto found = measured.found.find(space.configs[i].hash());
      const bool is_own = measured.baseline && space.configs[i] == *measured.baseline;
      strategy->tell(i, is_own                          ? std::optional(1.0)
                        : found != measured.found.end() ? std::optional(found->second.relative)
                                                        : std::nullopt);
    }
    flush();  // one transaction a round: a killed run loses this much at most
  }
}

void TuningSession::measure_batch(Item& item, BucketState& state, std::vector<Config> batch, int rounds,
                                  Measured& measured) {
  const auto fail = [&](const Config& config, const Verdict& verdict) {
    measured.refusals.add(config, verdict);
    if (measured.tried.insert(config.hash()).second) note_trial(item, make_trial(state.bucket, config, verdict));
    measured.found.erase(config.hash());
  };
  std::vector<Config> racing;
  if (measured.baseline) racing.push_back(*measured.baseline);
  const auto compiled = runner_.compile(batch);
  for (size_t i = 0; i < batch.size(); ++i) {
    const Verdict verdict = compiled[i].ok() ? runner_.check(batch[i]) : compiled[i];
    if (verdict.ok()) racing.push_back(batch[i]);
    else fail(batch[i], verdict);
  }
  if (racing.empty() || (racing.size() == 1 && measured.baseline)) return;

  const MeasurePlan plan{state.bucket.hi, rounds, std::max(15, rounds), 0.4, true};
  const auto series = runner_.measure(racing, plan);
  const bool first_is_new = !measured.baseline;
  if (first_is_new && series[0].verdict.ok()) measured.baseline = racing[0];
  if (series[0].verdict.ok()) {
    measured.baseline_us = series[0].us;
    measured.sliced = series[0].sliced;
  }
  for (size_t i = first_is_new ? 0 : 1; i < racing.size(); ++i) {
    if (!series[i].verdict.ok()) {
      fail(racing[i], series[i].verdict);
      continue;
    }
    const auto ratios = paired_ratios(series[i].us, series[0].us);
    const double relative = median(ratios), bound = median_upper_bound(ratios, kAlpha);
    if (measured.tried.insert(racing[i].hash()).second)
      note_trial(item, make_trial(state.bucket, racing[i], series[i].verdict, series[i].us));
    if (!series[0].us.empty())
      measured.found.insert_or_assign(racing[i].hash(),
                                      Found{racing[i], relative, bound, series[i].us, series[i].sliced});
  }
}

/// The best candidates, verified in this very bucket; those that fail there get another trial outcome.
std::vector<TuningSession::Found> TuningSession::pick_finalists(Item& item, BucketState& state, Measured& measured) {
  std::vector<Found> order, finalists;
  for (auto& [hash, found] : measured.found) order.push_back(found);
  std::stable_sort(order.begin(), order.end(), [](const Found& a, const Found& b) { return a.relative < b.relative; });
  for (const Found& found : order) {
    if (finalists.size() == kFinalists || (measured.is_recorded && found.relative > 1 - kMargin / 2)) break;
    if (!finalists.empty() && found.relative > finalists[0].relative + kFinalistSpread) break;
    Verdict verdict = compile_and_check(found.config);
    if (verdict.ok()) verdict = runner_.check_bucket(found.config, state.bucket);
    if (verdict.ok()) {
      measured.max_rel_err = std::max(measured.max_rel_err, verdict.max_rel_err);
      finalists.push_back(found);
      continue;
    }
    measured.refusals.add(found.config, verdict);
    --report_.trials;  // its trial is there already
    note_trial(item, make_trial(state.bucket, found.config, verdict, found.us));
  }
  return finalists;
}

/// `rounds` fresh rounds at every probe: by finalist and round the geometric mean of its ratios to the baseline.
/// A round that is missing was not won.
std::vector<std::vector<double>> TuningSession::race_finalists(const std::vector<Config>& racing,
                                                               const std::set<int64_t>& probes, int rounds) {
  std::vector<std::vector<double>> ratios(racing.size() - 1, std::vector<double>(static_cast<size_t>(rounds), 1.0));
  for (const int64_t length : probes) {
    const auto series = runner_.measure(racing, {length, rounds, rounds, 5.0, false});
    for (size_t f = 0; f < ratios.size(); ++f) {
      auto paired = paired_ratios(series[f + 1].us, series[0].us);
      paired.resize(static_cast<size_t>(rounds), 2.0);
      for (size_t r = 0; r < paired.size(); ++r)
        ratios[f][r] *= std::pow(paired[r], 1.0 / static_cast<double>(probes.size()));
    }
  }
  return ratios;
}

/// The finalist that beats the baseline in fresh rounds, or nullptr.
const TuningSession::Found* TuningSession::run_finals(const Bucket& bucket, const Config& baseline,
                                                      const std::vector<Found>& finalists) {
  std::vector<Config> racing{baseline};
  bool clear = true;
  for (const Found& found : finalists) {
    racing.push_back(found.config);
    clear &= found.bound <= 1 - kClear;
  }
  const std::set<int64_t> probes{bucket.lo + (bucket.hi - bucket.lo) / 2, bucket.lo};
  auto ratios = race_finalists(racing, probes, clear ? kClearRounds : kFinalRounds);
  bool undecided = false;  // faster in the middle, but one disturbed round is enough to miss the bound
  for (size_t f = 0; f < finalists.size(); ++f)
    undecided |= final_bound(ratios[f]) > 1 - kMargin && median(ratios[f]) < 1 - 2 * kMargin;
  if (undecided) {
    const auto more = race_finalists(racing, probes, kMoreRounds);
    for (size_t f = 0; f < ratios.size(); ++f) ratios[f].insert(ratios[f].end(), more[f].begin(), more[f].end());
  }
  const Found* winner = nullptr;
  double best = 0;
  for (size_t f = 0; f < finalists.size(); ++f) {
    if (final_bound(ratios[f]) > 1 - kMargin) continue;
    const double relative = std::sqrt(finalists[f].relative * median(ratios[f]));
    const bool better = !winner || relative < best * (1 - kMargin) ||
                        (relative < best * (1 + kMargin) && finalists[f].config.hash() < winner->config.hash());
    if (!better) continue;
    winner = &finalists[f];
    best = relative;
  }
  return winner;
}

void TuningSession::decide(Item& item, BucketState& state, const RankedSpace& space, Measured& measured) {
  const auto finalists = pick_finalists(item, state, measured);
  if (finalists.empty() && !measured.is_recorded) {
    state.failed = true;
    const std::string reasons = measured.refusals.text();  // none where earlier runs have tried all of them
    log_line(LogLevel::warning, fmt::format("{}: no candidate works{}{}; the view v_failed has each of them",
                                            describe(item, state.bucket), reasons.empty() ? "" : ": ", reasons));
    return;
  }
  const Found* winner = nullptr;
  if (!measured.is_recorded) winner = &finalists[0];
  else if (!finalists.empty()) winner = run_finals(state.bucket, *measured.baseline, finalists);

  ++report_.tunings;
  if (!winner && state.record && measured.baseline_us.empty()) {  // nothing new was measured: the record stands
    cache::Record record = *state.record;
    record.origin = cache::Origin::tuned;
    record.space_hash = space.hash;
    publish(item, state, std::move(record));
    return;
  }
  const Config& config = winner ? winner->config : *measured.baseline;
  // The times of winner and baseline must be of one run. A run that has measured no batch takes both from an earlier
  // one.
  std::vector<double> baseline_us = measured.baseline_us;
  if (baseline_us.empty() && measured.recalled_us > 0) baseline_us = {measured.recalled_us};
  const auto& us = winner ? winner->us : baseline_us;
  cache::Record record = make_record(state.bucket, config, space.hash, cache::Origin::tuned, us, baseline_us);
  if (state.record && state.record->median_us > 0 && measured.baseline && *measured.baseline != space.default_config) {
    // The baseline was an earlier winner: the default's time is carried over by the ratio of the two.
    record.default_us = state.record->default_us * record.default_us / state.record->median_us;
  }
  record.sliced = measured.sliced;
  record.max_rel_err = winner || !state.record ? measured.max_rel_err : state.record->max_rel_err;
  keep(item, config);
  publish(item, state, std::move(record));
}

}  // namespace seqtile::autotune
