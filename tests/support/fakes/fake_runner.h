// tests/support/fakes/fake_runner.h -- a Runner on a fake clock: times from a formula, noise from a seed.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <functional>
#include <map>
#include <random>
#include <set>
#include <string>

#include "autotune/runner.h"

namespace seqtile::test {

class FakeRunner : public autotune::Runner {
 public:
  /// The noiseless microseconds of a configuration at a length.
  using Model = std::function<double(const autotune::Config&, int64_t length)>;

  explicit FakeRunner(Model model, double noise = 0, uint64_t seed = 1)
      : model_(std::move(model)), noise_(noise), random_(seed) {}

  void begin(const autotune::OpDef& op, const autotune::Workload& workload, int64_t max_length) override;
  std::vector<autotune::Verdict> compile(std::span<const autotune::Config> candidates) override;
  autotune::Verdict check(const autotune::Config& candidate) override;
  autotune::Verdict check_bucket(const autotune::Config& candidate, const autotune::Bucket& bucket) override;
  std::vector<autotune::Series> measure(std::span<const autotune::Config> candidates,
                                        const autotune::MeasurePlan& plan) override;
  bool keep(const autotune::Config& candidate) override {
    if (keeps) kept.insert(candidate.json());
    return keeps;
  }
  std::vector<autotune::Counted> count(std::span<const autotune::CountTask> tasks) override;
  double now_s() override { return clock_s; }

  std::map<std::string, autotune::Verdict> compile_failures, check_failures, bucket_failures;  ///< by configuration
  std::map<std::string, autotune::Verdict> measure_failures;  ///< by configuration, regardless of earlier checks
  std::set<std::string> kept;
  bool keeps = true;  ///< the artifact store takes binaries
  double clock_s = 1000;
  Model on_ranks;  ///< time of the slowest rank in a race of all ranks; absent: as on one process
  std::map<std::string, autotune::Verdict> rank_failures;  ///< failures in races of all ranks, by configuration
  int64_t rank_races = 0;
  int64_t bucket_checks = 0;
  int64_t compiles = 0, measured = 0;                                    ///< number of candidates
  std::function<autotune::Counted(const autotune::CountTask&)> counter;  ///< absent: all counts fail
  int64_t counts = 0;
  std::function<void()> on_measure;  ///< called before each measurement

 private:
  Model model_;
  double noise_;
  std::mt19937_64 random_;
  std::set<std::string> compiled_;
};

}  // namespace seqtile::test
