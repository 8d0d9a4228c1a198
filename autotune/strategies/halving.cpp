// autotune/strategies/halving.cpp -- successive halving: each batch measures the better half for twice as many rounds.
// SPDX-License-Identifier: Apache-2.0
//
// Source: K. Jamieson, A. Talwalkar, Non-stochastic Best Arm Identification and Hyperparameter Optimization, AISTATS
// 2016.
#include <algorithm>

#include "autotune/strategies/strategies.h"

namespace seqtile::autotune {
namespace {

constexpr size_t kFirst = 32, kLast = 3;
constexpr int kFirstRounds = 3;

class Halving final : public RememberingStrategy {
 public:
  explicit Halving(const std::vector<Config>& ranked) : RememberingStrategy(ranked) {}

  Batch ask() override {
    if (rounds_ == 0) {
      for (size_t i = 0; i < std::min(kFirst, ranked_.size()); ++i) alive_.push_back(i);
      rounds_ = kFirstRounds;
      Batch batch{{}, rounds_};
      for (const size_t i : alive_)
        if (!known_[i]) batch.candidates.push_back(i);
      // An empty batch ends the search: an earlier run has measured all of these candidates.
      return batch;
    }
    if (alive_.size() <= kLast) return {};
    std::erase_if(alive_, [&](size_t i) { return !times_[i]; });
    std::stable_sort(alive_.begin(), alive_.end(), [&](size_t a, size_t b) { return *times_[a] < *times_[b]; });
    if (alive_.size() > kLast) alive_.resize(std::max(kLast, alive_.size() / 2));
    rounds_ *= 2;
    return {alive_, rounds_};
  }

 private:
  std::vector<size_t> alive_;
  int rounds_ = 0;
};

}  // namespace

std::unique_ptr<Strategy> make_halving(const std::vector<Config>& ranked) { return std::make_unique<Halving>(ranked); }

}  // namespace seqtile::autotune
