// tests/support/fakes/fake_runner.cpp -- see fake_runner.h.
// SPDX-License-Identifier: Apache-2.0
#include "tests/support/fakes/fake_runner.h"

#include <cmath>

namespace seqtile::test {
namespace {

autotune::Verdict lookup(const std::map<std::string, autotune::Verdict>& failures, const autotune::Config& config) {
  const auto at = failures.find(config.json());
  return at == failures.end() ? autotune::Verdict{} : at->second;
}

}  // namespace

void FakeRunner::begin(const autotune::OpDef&, const autotune::Workload&, int64_t) {}

std::vector<autotune::Verdict> FakeRunner::compile(std::span<const autotune::Config> candidates) {
  std::vector<autotune::Verdict> verdicts;
  for (const auto& config : candidates) {
    if (compiled_.insert(config.json()).second) {
      ++compiles;
      clock_s += 0.01;
    }
    verdicts.push_back(lookup(compile_failures, config));
  }
  return verdicts;
}

autotune::Verdict FakeRunner::check(const autotune::Config& candidate) { return lookup(check_failures, candidate); }

autotune::Verdict FakeRunner::check_bucket(const autotune::Config& candidate, const autotune::Bucket&) {
  clock_s += 0.002;
  ++bucket_checks;
  return lookup(bucket_failures, candidate);
}

std::vector<autotune::Series> FakeRunner::measure(std::span<const autotune::Config> candidates,
                                                  const autotune::MeasurePlan& plan) {
  if (on_measure) on_measure();
  measured += static_cast<int64_t>(candidates.size());
  std::vector<autotune::Series> series(candidates.size());
  rank_races += plan.on_all_ranks;
  const Model& model = plan.on_all_ranks && on_ranks ? on_ranks : model_;
  for (size_t i = 0; i < candidates.size(); ++i) series[i].verdict = lookup(measure_failures, candidates[i]);
  if (plan.on_all_ranks)
    for (size_t i = 0; i < candidates.size(); ++i) series[i].verdict = lookup(rank_failures, candidates[i]);
  if (!candidates.empty() && !series[0].verdict.ok()) return series;  // as if the baseline had failed
  std::normal_distribution<double> normal;
  double drift = 1;
  for (int round = 0; round < plan.min_rounds; ++round) {
    drift *= std::exp(3 * noise_ * normal(random_));  // the machine's speed drifts equally for all candidates
    for (size_t i = 0; i < candidates.size(); ++i) {
      if (!series[i].verdict.ok()) continue;
      const double us = model(candidates[i], plan.length) * drift * std::exp(noise_ * normal(random_));
      series[i].us.push_back(us);
      clock_s += us * 1e-6 + 1e-4;
    }
  }
  return series;
}

std::vector<autotune::Counted> FakeRunner::count(std::span<const autotune::CountTask> tasks) {
  std::vector<autotune::Counted> counted;
  for (const autotune::CountTask& task : tasks) {
    ++counts;
    counted.push_back(counter ? counter(task) : autotune::Counted{{"error", "the machine does not know it"}, {}});
  }
  return counted;
}

}  // namespace seqtile::test
