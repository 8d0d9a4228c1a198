// autotune/tuning/modelling.cpp -- decisions for a GPU that is not here: ranked, compiled, stored as modelled.
// SPDX-License-Identifier: Apache-2.0
//
// Every bucket's space is ranked by the cost model. The first few of each bucket, and its default, are candidates of
// all buckets of the operation; small calls of them run on the PTX machine, and its counters take the place of the
// model's estimates (gpu_model.cpp). Where a candidate cannot be counted its estimate stays, scaled as the others'
// were. Counting is bounded by work, never by time, so that every machine decides alike, busy or not; what a budget or
// Ctrl-C cuts off decides nothing and is counted anew by the next run.
// The model cannot tell 3 % apart, so that within them a configuration serves as many neighbouring buckets as it can:
// few binaries.
#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "autotune/gpu_model.h"
#include "autotune/op_def.h"
#include "autotune/tuning/session.h"
#include "autotune/worker/stats.h"
#include "jit/base/log.h"
#include "seqtile/device.h"

namespace seqtile::autotune {
namespace {

constexpr size_t kRefined = 4;        // candidates that a bucket brings in, beside the default
constexpr size_t kStoredTrials = 5;   // of a bucket
constexpr double kIndistinct = 1.03;  // predictions closer than this are equal
constexpr size_t kMostCounted = 512;  // small calls of an operation; models of today have up to 420
constexpr size_t kCountsAtOnce = 32;  // between looks at budget and Ctrl-C

// Of one core, for estimates: a small call (of attention twice that, of norms half), and a binary. Between what 2264
// calls and 47 cubins of llama-3-8b took of a Zen 5 EPYC's processors, 117 s at most, and what passed meanwhile.
constexpr double kCountSeconds = 0.06, kPtxSeconds = 0.15, kCubinSeconds = 0.4;

/// A configuration in one bucket.
struct Candidate {
  Config config;
  double us = 0;
  std::string detail;  ///< what the prediction rests on
};

std::string sample_name(const Config& config, const GpuSample& sample) {
  return fmt::format("{} {} {}", config.json(), sample.workload.json(), sample.length);
}

std::string describe_counts(const ProgramCounts& c) {
  return fmt::format(
      "counted on the PTX machine: {:.0f} warp instructions, {:.0f} global sectors, {:.0f} shared accesses a program",
      c.warp_instructions, c.global_sectors, c.shared_wavefronts);
}

}  // namespace

struct TuningSession::Open {
  BucketState* state;
  RankedSpace space;
  std::vector<Candidate> candidates;
  const Candidate* chosen = nullptr;

  const Candidate* find(const Config& config) const {
    for (const Candidate& candidate : candidates)
      if (candidate.config == config) return &candidate;
    return nullptr;
  }
  double best_us() const {
    double best = std::numeric_limits<double>::infinity();
    for (const Candidate& candidate : candidates) best = std::min(best, candidate.us);
    return best;
  }
  /// Those that the model cannot tell from the best.
  std::vector<Config> indistinct() const {
    std::vector<Config> found;
    for (const Candidate& candidate : candidates)
      if (candidate.us <= kIndistinct * best_us()) found.push_back(candidate.config);
    return found;
  }
};

struct TuningSession::Modelled {
  std::vector<Open> buckets;  ///< ascending

  /// From the longest bucket down: what is good enough for this one and the most of those before it.
  void choose() {
    for (size_t end = buckets.size(); end > 0;) {
      std::vector<Config> shared = buckets[end - 1].indistinct();
      size_t begin = end - 1;
      for (; begin > 0 && !shared.empty(); --begin) {
        std::vector<Config> both;
        for (const Config& config : buckets[begin - 1].indistinct())
          if (std::find(shared.begin(), shared.end(), config) != shared.end()) both.push_back(config);
        if (both.empty()) break;
        shared = std::move(both);
      }
      const Config* best = nullptr;
      double least = std::numeric_limits<double>::infinity();
      for (const Config& config : shared) {
        double sum = 0;
        for (size_t i = begin; i < end; ++i) sum += buckets[i].find(config)->us / buckets[i].best_us();
        if (sum < least) least = sum, best = &config;
      }
      for (size_t i = begin; i < end; ++i) buckets[i].chosen = best ? buckets[i].find(*best) : nullptr;
      end = begin;
    }
  }
  std::vector<Config> chosen() const {
    std::vector<Config> configs;
    for (const Open& open : buckets)
      if (open.chosen && std::find(configs.begin(), configs.end(), open.chosen->config) == configs.end())
        configs.push_back(open.chosen->config);
    return configs;
  }
  /// Each small call once: those of every bucket's best candidate, then of every second one, and so on.
  std::vector<CountTask> small_calls(const Item& item) const {
    std::vector<CountTask> tasks;
    std::set<std::string> known;
    bool has_more = true;
    for (size_t rank = 0; std::exchange(has_more, false); ++rank)
      for (const Open& open : buckets) {
        if (rank >= open.candidates.size()) continue;
        has_more = true;
        const Config& config = open.candidates[rank].config;
        for (const GpuSample& sample : item.op->gpu_samples(item.workload, config, open.state->bucket.hi)) {
          if (!known.insert(sample_name(config, sample)).second) continue;
          if (tasks.size() == kMostCounted) return tasks;
          tasks.push_back({config, sample.workload, sample.length});
        }
      }
    return tasks;
  }
};

void TuningSession::model_all() {
  for (Item& item : items_) {
    if (is_over()) return;
    const bool is_done = std::all_of(item.buckets.begin(), item.buckets.end(),
                                     [](const BucketState& state) { return state.is_resolved(); });
    if (!is_done) model_item(item);
    flush();
  }
}

void TuningSession::model_item(Item& item) {
  begin(item);
  report_progress("rank " + describe(item, item.buckets.back().bucket));
  Modelled modelled = rank_buckets(item, target_);
  if (item.op->gpu_work && item.op->gpu_samples) {
    const auto counts = count_small_calls(item, modelled.small_calls(item));
    if (!counts) return;
    refine(item, modelled, *counts);
  }
  if (choose_compiling(item, modelled)) publish_modelled(item, modelled);
}

double TuningSession::estimate_modelling(Item& item, const Target& target) {
  Modelled modelled = rank_buckets(item, target);
  modelled.choose();
  const size_t calls = item.op->gpu_work && item.op->gpu_samples ? modelled.small_calls(item).size() : 0;
  const double binary_s = target.cubin_arch.empty() ? kPtxSeconds : kCubinSeconds;
  return (static_cast<double>(calls) * kCountSeconds + static_cast<double>(modelled.chosen().size()) * binary_s) /
         cores_available();
}

TuningSession::Modelled TuningSession::rank_buckets(Item& item, const Target& target) {
  Modelled modelled;
  std::vector<Config> together;
  const auto bring_in = [&](const Config& config) {
    if (std::find(together.begin(), together.end(), config) == together.end()) together.push_back(config);
  };
  for (BucketState& state : item.buckets) {
    if (state.is_resolved()) continue;
    Open open{&state, rank_space(item, state.bucket.hi, target), {}};
    for (size_t i = 0; i < std::min(kRefined, open.space.configs.size()); ++i) bring_in(open.space.configs[i]);
    bring_in(open.space.default_config);
    modelled.buckets.push_back(std::move(open));
  }
  for (Open& open : modelled.buckets) {
    for (const Config& config : together)
      if (std::find(open.space.configs.begin(), open.space.configs.end(), config) != open.space.configs.end()) {
        const double us = predicted_us(*item.op, item.workload, config, open.state->bucket.hi, target);
        if (std::isfinite(us)) open.candidates.push_back({config, us, "the cost model alone"});
      }
    std::stable_sort(open.candidates.begin(), open.candidates.end(),
                     [](const Candidate& a, const Candidate& b) { return a.us < b.us; });
  }
  return modelled;
}

/// By sample_name(); nothing when it was cut off.
std::optional<std::map<std::string, Counted>> TuningSession::count_small_calls(const Item& item,
                                                                               const std::vector<CountTask>& tasks) {
  std::map<std::string, Counted> counted;
  for (size_t i = 0; i < tasks.size(); i += kCountsAtOnce) {
    if (is_over()) return std::nullopt;
    report_progress(fmt::format("count {} of {} {}", i, tasks.size(), describe(item, item.buckets.back().bucket)));
    const auto part = std::span(tasks).subspan(i, std::min(kCountsAtOnce, tasks.size() - i));
    const auto results = runner_.count(part);
    for (size_t t = 0; t < part.size(); ++t)
      counted[sample_name(part[t].config, {part[t].workload, part[t].length})] = results[t];
  }
  return counted;
}

/// Puts the counters of small calls in the place of estimates.
void TuningSession::refine(const Item& item, Modelled& modelled, const std::map<std::string, Counted>& counted) {
  const OpDef& op = *item.op;
  for (Open& open : modelled.buckets) {
    const int64_t length = open.state->bucket.hi;
    std::vector<double> ratios;
    std::vector<Candidate*> uncounted;
    for (Candidate& candidate : open.candidates) {
      ProgramCounts sum;
      std::string problem;
      const auto samples = op.gpu_samples(item.workload, candidate.config, length);
      for (const GpuSample& sample : samples) {
        const auto one = counted.find(sample_name(candidate.config, sample));
        if (one == counted.end()) problem = fmt::format("not among the {} best small calls", kMostCounted);
        else if (one->second.verdict.ok()) sum.add(one->second.counts, sample.weight);
        else problem = one->second.verdict.detail;
      }
      if (!problem.empty() || samples.empty()) {
        uncounted.push_back(&candidate);
        if (!problem.empty()) candidate.detail = "the cost model alone; not counted: " + problem;
        continue;
      }
      GpuWork work = op.gpu_work(item.workload, candidate.config, length, target_);
      apply_counts(sum, work);
      const double us = predict_us(work, target_.gpu);
      ratios.push_back(us / candidate.us);
      candidate.us = us;
      candidate.detail = describe_counts(sum);
    }
    for (Candidate* candidate : uncounted)
      if (!ratios.empty()) candidate->us *= median(ratios);
  }
}

/// Chooses until all that is chosen compiles; false when it was cut off.
bool TuningSession::choose_compiling(Item& item, Modelled& modelled) {
  while (true) {
    modelled.choose();
    const std::vector<Config> configs = modelled.chosen();
    report_progress("compile " + describe(item, item.buckets.back().bucket), true);
    const std::vector<Verdict> verdicts = runner_.compile(configs);
    std::vector<Config> failed;
    for (size_t i = 0; i < configs.size(); ++i) {
      if (verdicts[i].ok()) continue;
      failed.push_back(configs[i]);
      warn_refused(item, configs[i], verdicts[i]);
      const Verdict refused{kRefusedOutcome, verdicts[i].outcome + ": " + verdicts[i].detail};
      for (const Open& open : modelled.buckets)
        if (open.find(configs[i])) note_trial(item, make_trial(open.state->bucket, configs[i], refused));
    }
    if (failed.empty()) return true;
    if (is_over()) return false;
    for (Open& open : modelled.buckets)
      std::erase_if(open.candidates, [&](const Candidate& candidate) {
        return std::find(failed.begin(), failed.end(), candidate.config) != failed.end();
      });
  }
}

/// One line a reason.
void TuningSession::warn_refused(const Item& item, const Config& config, const Verdict& verdict) {
  if (refusals_.add(config, verdict))
    log_line(LogLevel::warning, fmt::format("{} is left out: {} {}: {}", item.op->name, config.json(), verdict.outcome,
                                            detail_of(verdict)));
}

/// One line for all buckets without a candidate.
void TuningSession::warn_failed(const Item& item) {
  const auto failed = std::count_if(item.buckets.begin(), item.buckets.end(), [](const auto& b) { return b.failed; });
  if (failed == 0) return;
  const bool may_be_ptxas = failed == static_cast<int64_t>(item.buckets.size()) && !target_.ptxas.empty();
  log_line(LogLevel::warning,
           fmt::format("{}: no candidate fits the GPU and compiles in {} of {} buckets{}",
                       describe(item, {item.buckets.front().bucket.lo, item.max_length()}), failed, item.buckets.size(),
                       may_be_ptxas ? "; where " + target_.ptxas +
                                          " refuses them, set SEQTILE_PTXAS to another, or to none: kernels then stay "
                                          "PTX, which the driver compiles"
                                    : ""));
}

void TuningSession::publish_modelled(Item& item, const Modelled& modelled) {
  for (const Open& open : modelled.buckets) {
    BucketState& state = *open.state;
    if (!open.chosen) {
      state.failed = true;
      continue;
    }
    std::vector<const Candidate*> order;
    for (const Candidate& candidate : open.candidates) order.push_back(&candidate);
    std::stable_sort(order.begin(), order.end(), [](const auto* a, const auto* b) { return a->us < b->us; });
    const Candidate* standard = open.find(open.space.default_config);
    for (size_t i = 0; i < order.size(); ++i) {
      if (i >= kStoredTrials && order[i] != open.chosen && order[i] != standard) continue;
      note_trial(item,
                 make_trial(state.bucket, order[i]->config, {kModelledOutcome, order[i]->detail}, {order[i]->us}));
      pending_trials_.back().second.samples = 0;
    }
    auto record = make_record(state.bucket, open.chosen->config, open.space.hash, cache::Origin::modelled,
                              {open.chosen->us}, {standard ? standard->us : open.chosen->us});
    record.samples = 0;
    ++report_.modelled;
    keep(item, open.chosen->config);
    publish(item, state, std::move(record));
  }
  warn_failed(item);
}

}  // namespace seqtile::autotune
