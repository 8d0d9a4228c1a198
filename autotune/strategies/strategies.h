// autotune/strategies/strategies.h -- the factories of all strategies, and their common base.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <random>

#include "autotune/strategies/strategy.h"

namespace seqtile::autotune {

std::unique_ptr<Strategy> make_exhaustive(const std::vector<Config>& ranked);
std::unique_ptr<Strategy> make_topk(const std::vector<Config>& ranked, int64_t seed);
std::unique_ptr<Strategy> make_halving(const std::vector<Config>& ranked);
std::unique_ptr<Strategy> make_evolutionary(const std::vector<Config>& ranked, int64_t seed);

/// A strategy that stores the results it is told.
class RememberingStrategy : public Strategy {
 public:
  void tell(size_t candidate, std::optional<double> relative_time) override {
    if (candidate >= known_.size()) return;
    known_[candidate] = true;
    times_[candidate] = relative_time;
  }

 protected:
  explicit RememberingStrategy(const std::vector<Config>& ranked)
      : ranked_(ranked), known_(ranked.size()), times_(ranked.size()) {}

  const std::vector<Config>& ranked_;
  std::vector<bool> known_;                   ///< by candidate: a result was told
  std::vector<std::optional<double>> times_;  ///< by candidate; nullopt if it failed or is not known
};

}  // namespace seqtile::autotune
