// bench/suites/regret_bench.cpp -- the cost of serving a bucket's record, against exhaustive search at the length.
// SPDX-License-Identifier: Apache-2.0
//
// A model's operations are tuned once for lengths 1..4096, as `seqtile prewarm` does. Then lengths inside buckets, at
// which nothing was tuned, are searched exhaustively. `regret` is the record's time over the best configuration's time,
// paired by round. `noise` is the same ratio between the record and a second copy of itself.
#include <fmt/format.h>

#include <algorithm>

#include "bench/config_contestant.h"
#include "bench/op_arena.h"
#include "bench/stats.h"
#include "bench/suites.h"
#include "models/file/model_file.h"
#include "seqtile/model.h"

namespace seqtile::bench {
namespace {

constexpr int64_t kTop = 4096;
constexpr double kTuneSeconds = 120;
constexpr int64_t kLengths[] = {7,   11,  23,  55,   91,
                                181, 357, 811, 1601, 3301};  // inside buckets, never at their upper ends
constexpr int kQualifyingRounds = 3, kFinalists = 4;

struct Racer {
  std::string config;
  std::unique_ptr<Contestant> contestant;
  std::vector<double> seconds;
};

void race_rounds(std::vector<Racer*> racers, int rounds, double round_s, int copies) {
  for (Racer* racer : racers) racer->seconds.clear();
  for (int round = 0; round < rounds; ++round) {
    for (size_t i = 0; i < racers.size(); ++i) {
      Racer& racer = *racers[(i + round) % racers.size()];
      const double estimate = racer.contestant->burst(round, 1, copies)[0];
      const int calls = std::clamp(static_cast<int>(round_s / std::max(estimate, 1e-7)), 1, 100);
      racer.seconds.push_back(median(racer.contestant->burst(round + 1, calls, copies)));
    }
  }
}

double median_ratio(const std::vector<double>& above, const std::vector<double>& below) {
  std::vector<double> ratios;
  for (size_t i = 0; i < above.size(); ++i) ratios.push_back(above[i] / below[i]);
  return median(ratios);
}

Racer make_racer(OpArena& arena, const autotune::Config& config, const std::shared_ptr<Device>& device) {
  return {config.json(),
          make_config_contestant(arena.op(), arena.workload(), config, arena.length(), arena.tensors(), device),
          {}};
}

/// All configurations at the arena's length that compute the right result.
std::vector<Racer> all_configurations(OpArena& arena, const std::shared_ptr<Device>& device) {
  std::vector<Racer> racers;
  const auto space = arena.op().config_space(arena.workload(), arena.length(), device->target());
  for (const autotune::Config& config : space.enumerate()) {
    Racer racer = make_racer(arena, config, device);
    arena.poison(0);
    racer.contestant->run(0);
    if (arena.max_error(0) <= 1) racers.push_back(std::move(racer));
  }
  return racers;
}

std::vector<Result> measure_regret(OpArena& arena, const RunOptions& options) {
  const std::shared_ptr<Device> device = open_device("cpu", arena.workload().threads);
  const TunedHandle tuned = arena.environment().prepare(arena.workload());
  const Explanation answer = tuned.handle.explain(arena.length());
  const autotune::Config& recorded = answer.config;
  std::vector<Racer> all = all_configurations(arena, device);
  std::vector<Racer*> field;
  for (Racer& racer : all) field.push_back(&racer);
  race_rounds(field, kQualifyingRounds, options.round_s / 4, arena.copies());
  std::sort(field.begin(), field.end(), [](Racer* a, Racer* b) { return median(a->seconds) < median(b->seconds); });
  field.resize(std::min<size_t>(field.size(), kFinalists));
  Racer record = make_racer(arena, recorded, device), again = make_racer(arena, recorded, device);
  std::vector<Racer*> finals = {&record, &again};
  finals.insert(finals.end(), field.begin(), field.end());
  race_rounds(finals, options.rounds, options.round_s, arena.copies());
  const Racer* best = *std::min_element(field.begin(), field.end(),
                                        [](Racer* a, Racer* b) { return median(a->seconds) < median(b->seconds); });
  Result ours, exhaustive;
  ours.implementation = "seqtile";
  ours.seconds = record.seconds;
  ours.label = answer.origin + " " + record.config;
  ours.counters = {{"regret", median_ratio(record.seconds, best->seconds)},
                   {"noise", median_ratio(record.seconds, again.seconds)},
                   {"searched", answer.origin == "tuned" || answer.origin == "merged" ? 1.0 : 0.0},
                   {"configurations", static_cast<double>(all.size())}};
  exhaustive.implementation = "exhaustive";
  exhaustive.seconds = best->seconds;
  exhaustive.label = best->config;
  return {ours, exhaustive};
}

std::vector<autotune::TuneRequest> requests(const Environment& environment, int threads) {
  const models::Model model = models::load_model(environment.options().model);
  return models::model_operations(model, {1, kTop, 1, 0}, model.dtype, threads);
}

Case make_case(Environment& environment, const autotune::TuneRequest& request, int64_t length) {
  Case item;
  item.operation = "regret";
  item.dtype = std::string(dtype_name(request.workload.dtype));
  item.shape = fmt::format("{}_l{}", request.label, length);
  item.threads = request.workload.threads;
  item.group = "untuned";
  item.implementations = {"seqtile", "exhaustive"};
  item.run = [&environment, request, length](const Case& self, const std::vector<std::string>&,
                                             const RunOptions& options) {
    environment.tune_once(requests(environment, self.threads), kTuneSeconds);
    OpArena arena(environment, request.workload, length, {});
    return measure_regret(arena, options);
  };
  return item;
}

}  // namespace

void add_regret_cases(std::vector<Case>& cases, Environment& environment) {
  if (environment.options().model.empty()) return;
  for (int threads : environment.options().threads) {
    for (const autotune::TuneRequest& request : requests(environment, threads)) {
      for (int64_t length : kLengths) {
        if (length >= request.lo && length <= request.hi) cases.push_back(make_case(environment, request, length));
      }
    }
  }
}

}  // namespace seqtile::bench
