// autotune/tuning/rank_finals.cpp -- races the best configurations of an operation on all of its ranks together.
// SPDX-License-Identifier: Apache-2.0
//
// A process without peers measures what a kernel computes, but not how its ranks wait for each other. So the best
// configurations of a bucket, with at least one of each form of the kernel, run on all ranks at once, in interleaved
// rounds. The time of a round is the time of its slowest rank. The recorded configuration is the baseline: it stays
// unless a challenger beats it by the rule of all finals. In a range of buckets with one configuration, the first and
// the last bucket are raced. If both keep the configuration, the buckets between them keep it too; else the range is
// halved. A configuration that the ranks cannot run together is a failed trial. A trial keeps the time of one process
// beside the time of all ranks; it is 0 where one process has not measured the configuration.
#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "autotune/op_def.h"
#include "autotune/tuning/session.h"
#include "autotune/worker/rank_group.h"
#include "autotune/worker/stats.h"
#include "jit/base/log.h"

namespace seqtile::autotune {
namespace {

constexpr size_t kMost = 5;  // configurations in a race
// Ratio to the fastest in one process; a third or later configuration above it is not raced.
constexpr double kNotHopeless = 1.25;
constexpr double kLeastLimit = 5, kMostLimit = 60;  // seconds of a race

using Trials = std::map<std::string, cache::TrialRow>;  // by configuration hash

}  // namespace

/// A configuration in a race.
struct TuningSession::RankLane {
  Config config;
  double alone_us = 0;  ///< time in one process
  std::vector<double> us;
};

int ranks_to_race(const OpDef& op, const Workload& workload, const DeviceInfo& device) {
  if (!op.on_rank || device.kind != "cpu") return 0;
  const RankCall call = op.on_rank(workload, 0, 1);
  return call.world_size > 1 && has_rank_group(call.fabric) ? call.world_size : 0;
}

bool awaits_ranks(const Item& item, const BucketState& state) {
  if (item.num_ranks == 0 || state.is_raced || !state.record) return false;
  return state.record->origin != cache::Origin::pinned;
}

bool is_chosen_by_ranks(const cache::Record& record, const std::vector<cache::TrialRow>& trials) {
  return std::any_of(trials.begin(), trials.end(), [&](const cache::TrialRow& trial) {
    if (trial.config_json != record.config_json) return false;
    return trial.chosen || (trial.outcome != "ok" && trial.ranks > 0);
  });
}

void TuningSession::race_all_ranks() {
  for (Item& item : items_) {
    const auto can_race = [&](const BucketState& state) { return awaits_ranks(item, state) && state.is_resolved(); };
    for (size_t first = 0, last = 0; first < item.buckets.size(); first = last + 1) {
      last = first;
      if (!can_race(item.buckets[first])) continue;
      while (last + 1 < item.buckets.size() && can_race(item.buckets[last + 1]) &&
             item.buckets[last + 1].record->config_json == item.buckets[first].record->config_json)
        ++last;
      if (is_over()) return;
      begin(item);
      settle_range(item, first, last);
    }
  }
}

/// Requires: the buckets from first to last have one configuration, except that a first or last bucket already raced
/// may have another one.
void TuningSession::settle_range(Item& item, size_t first, size_t last) {
  const size_t middle = first + (last - first) / 2;
  const std::string config = item.buckets[middle].record->config_json;
  for (const size_t end : {last, first}) {
    if (item.buckets[end].is_raced) continue;
    if (is_over()) return;
    race_bucket(item, item.buckets[end]);
    if (!item.buckets[end].is_raced) return;  // this machine cannot run the ranks
  }
  if (last - first < 2) return;
  const auto keeps = [&](size_t i) { return item.buckets[i].record->config_json == config; };
  if (!keeps(first) || !keeps(last)) {
    settle_range(item, first, middle);
    settle_range(item, middle, last);
    return;
  }
  for (size_t i = first + 1; i < last; ++i) {
    BucketState& state = item.buckets[i];
    auto trials = usable_trials(item, state.bucket);
    const auto known = std::ranges::find(trials, config, &cache::TrialRow::config_json);
    cache::TrialRow row = known != trials.end() ? *known : make_trial(state.bucket, Config::parse(config), {}, {});
    const auto name = [&](size_t end) {
      return fmt::format("{}..{}", item.buckets[end].bucket.lo, item.buckets[end].bucket.hi);
    };
    row.ranks = item.num_ranks, row.chosen = true;
    row.detail = fmt::format("chosen at {} and {}, the ends of its range", name(first), name(last));
    pending_trials_.emplace_back(item.key, std::move(row));
    state.is_raced = true;
  }
}

void TuningSession::race_bucket(Item& item, BucketState& state) {
  report_progress("all ranks " + describe(item, state.bucket));
  Trials trials;
  for (auto& row : usable_trials(item, state.bucket)) trials.emplace(row.config_hash, std::move(row));
  std::vector<RankLane> lanes = line_up_ranks(item, state, trials);
  if (!time_on_ranks(item, state, lanes, kFinalRounds)) return;
  const auto is_undecided = [&](const RankLane& lane) {
    const auto ratios = paired_ratios(lane.us, lanes[0].us);
    return ratios.size() == kFinalRounds && final_bound(ratios) > 1 - kMargin && median(ratios) < 1 - 2 * kMargin;
  };
  if (std::any_of(lanes.begin(), lanes.end(), is_undecided)) time_on_ranks(item, state, lanes, kMoreRounds);
  ++report_.rank_races;
  state.is_raced = true;
  if (lanes.empty()) {
    log_line(LogLevel::warning,
             describe(item, state.bucket) + ": no configuration runs on all ranks; the record stays");
    return;
  }
  const size_t winner = pick_on_ranks(item, state, lanes);
  if (!lanes.empty()) publish_raced(item, state, lanes, winner, trials);
  flush();
}

/// The lanes of a race: the recorded configuration, the default, the two fastest measured configurations, and the
/// fastest of each other form if it is not far behind.
std::vector<TuningSession::RankLane> TuningSession::line_up_ranks(const Item& item, const BucketState& state,
                                                                  const Trials& trials) {
  std::vector<RankLane> lanes;
  const auto add = [&](const Config& config, double alone_us) {
    const bool is_new = std::ranges::find(lanes, config, &RankLane::config) == lanes.end();
    if (is_new && compile_and_check(config).ok()) lanes.push_back({config, alone_us, {}});
  };
  add(Config::parse(state.record->config_json), state.record->median_us);
  add(item.op->default_config(item.workload, state.bucket.hi, target_), state.record->default_us);
  std::vector<const cache::TrialRow*> order;
  for (const auto& [hash, row] : trials)
    if (row.outcome == "ok" && row.median_us > 0) order.push_back(&row);
  std::ranges::stable_sort(order, {}, &cache::TrialRow::median_us);
  std::set<std::string> forms;
  for (size_t i = 0; i < order.size() && lanes.size() < kMost; ++i) {
    if (i >= 2 && order[i]->median_us > kNotHopeless * order[0]->median_us) break;
    const Config config = Config::parse(order[i]->config_json);
    if (forms.insert(form_of(config)).second || i < 2) add(config, order[i]->median_us);
  }
  return lanes;
}

/// Adds rounds to all lanes and removes the lanes that fail. Returns false if this machine cannot run the ranks.
bool TuningSession::time_on_ranks(const Item& item, const BucketState& state, std::vector<RankLane>& lanes,
                                  int rounds) {
  double round_us = 0;
  for (const RankLane& lane : lanes) round_us += lane.alone_us;
  MeasurePlan plan{state.bucket.hi, rounds, rounds, 0, false, true};
  plan.limit_s = std::clamp(3e-6 * rounds * round_us, kLeastLimit, kMostLimit);
  while (!lanes.empty()) {
    std::vector<Config> racing;
    for (const RankLane& lane : lanes) racing.push_back(lane.config);
    const auto series = runner_.measure(racing, plan);
    std::vector<RankLane> left;
    for (size_t i = 0; i < lanes.size(); ++i) {
      if (series[i].verdict.outcome == "oom") {
        log_line(LogLevel::warning,
                 describe(item, state.bucket) + ": not timed on all ranks: " + series[i].verdict.detail);
        return false;
      }
      if (!series[i].verdict.ok()) {
        note_rank_failure(item, state, lanes[i].config, series[i].verdict);
        continue;
      }
      lanes[i].us.insert(lanes[i].us.end(), series[i].us.begin(), series[i].us.end());
      left.push_back(std::move(lanes[i]));
    }
    const bool is_whole = series[0].verdict.ok();  // if the first lane fails, the others are not timed
    lanes = std::move(left);
    if (is_whole) return true;
  }
  return true;
}

/// Returns the first lane, or the fastest lane that beats it and computes correct results in this bucket. The default
/// beats the first lane by its median alone: a configuration counts as better than the default only if measurements
/// show it. Lanes with wrong results are removed.
size_t TuningSession::pick_on_ranks(const Item& item, const BucketState& state, std::vector<RankLane>& lanes) {
  const Config standard = item.op->default_config(item.workload, state.bucket.hi, target_);
  while (!lanes.empty()) {
    size_t winner = 0;
    double best = 1;
    for (size_t i = 1; i < lanes.size(); ++i) {
      const auto ratios = paired_ratios(lanes[i].us, lanes[0].us);
      const double relative = median(ratios);
      const bool is_faster =
          final_bound(ratios) <= 1 - kMargin || (lanes[i].config == standard && relative < 1 - 2 * kMargin);
      if (ratios.size() < kFinalRounds || !is_faster) continue;
      const bool is_close = relative < best * (1 + kMargin) && relative >= best * (1 - kMargin);
      if (winner != 0 && !(is_close ? lanes[i].config.hash() < lanes[winner].config.hash() : relative < best)) continue;
      winner = i, best = relative;
    }
    const Config& config = lanes[winner].config;
    if (config.json() == state.record->config_json) return winner;
    const Verdict verdict = runner_.check_bucket(config, state.bucket);
    if (verdict.ok()) return winner;
    note_rank_failure(item, state, config, verdict);
    lanes.erase(lanes.begin() + static_cast<std::ptrdiff_t>(winner));
  }
  return 0;
}

void TuningSession::publish_raced(Item& item, BucketState& state, const std::vector<RankLane>& lanes, size_t winner,
                                  Trials& trials) {
  const Config standard = item.op->default_config(item.workload, state.bucket.hi, target_);
  const auto default_lane = std::ranges::find(lanes, standard, &RankLane::config);
  for (const auto& [hash, trial] : trials) {  // an earlier choice is chosen no longer
    if (!trial.chosen ||
        std::ranges::find(lanes, hash, [](const RankLane& l) { return l.config.hash(); }) != lanes.end())
      continue;
    cache::TrialRow row = trial;
    row.chosen = false, row.detail.clear();
    pending_trials_.emplace_back(item.key, std::move(row));
  }
  for (size_t i = 0; i < lanes.size(); ++i) {
    const auto known = trials.find(lanes[i].config.hash());
    cache::TrialRow row = known != trials.end() ? known->second : make_trial(state.bucket, lanes[i].config, {}, {});
    if (row.chosen) row.detail.clear();  // how it was chosen before
    row.ranks = item.num_ranks, row.chosen = i == winner;
    row.ranks_us = median(lanes[i].us);
    row.ranks_p20_us = quantile(lanes[i].us, 0.2), row.ranks_p80_us = quantile(lanes[i].us, 0.8);
    pending_trials_.emplace_back(item.key, std::move(row));
  }
  const RankLane& chosen = lanes[winner];
  const bool is_kept = chosen.config.json() == state.record->config_json;
  const std::string space_hash = item.op->config_space(item.workload, state.bucket.hi, target_).hash();
  cache::Record record =
      make_record(state.bucket, chosen.config, space_hash, is_kept ? state.record->origin : cache::Origin::tuned,
                  chosen.us, default_lane != lanes.end() ? default_lane->us : chosen.us);
  record.max_rel_err = state.record->max_rel_err;
  keep(item, chosen.config);
  publish(item, state, std::move(record), fmt::format(", by all {} ranks", item.num_ranks));
  state.is_raced = true;
}

/// A trial of the candidate was counted before, except for the default of a merged bucket.
void TuningSession::note_rank_failure(const Item& item, const BucketState& state, const Config& config,
                                      const Verdict& verdict) {
  --report_.trials;
  cache::TrialRow row = make_trial(state.bucket, config, {verdict.outcome, verdict.detail});
  row.ranks = item.num_ranks;
  note_trial(item, std::move(row));
}

}  // namespace seqtile::autotune
