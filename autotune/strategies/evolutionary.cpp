// autotune/strategies/evolutionary.cpp -- mutates and crosses the best configurations measured so far.
// SPDX-License-Identifier: Apache-2.0
//
// The strategy suits spaces that are too large to rank well. The first generation has the configurations that the cost
// model ranks first and random ones; later generations have neighbours of the fastest. The search ends after two
// generations in a row without a better configuration, or after eight generations.
#include <algorithm>

#include "autotune/strategies/strategies.h"

namespace seqtile::autotune {
namespace {

constexpr size_t kPopulation = 8, kRandom = 2, kParents = 3;
constexpr int kGenerations = 8, kMostStalled = 2;

class Evolutionary final : public RememberingStrategy {
 public:
  Evolutionary(const std::vector<Config>& ranked, int64_t seed)
      : RememberingStrategy(ranked), asked_(ranked.size()), random_(static_cast<uint64_t>(seed)) {}

  Batch ask() override {
    Batch batch;
    if (generation_ == 0) {
      for (size_t i = 0; i < ranked_.size() && batch.candidates.size() < kPopulation - kRandom; ++i) add(batch, i);
    } else {
      const double best = best_time();
      stalled_ = best < best_seen_ * 0.99 ? 0 : stalled_ + 1;
      best_seen_ = std::min(best_seen_, best);
      if (generation_ >= kGenerations || stalled_ >= kMostStalled) return batch;
      add_children(batch);
    }
    for (size_t i = 0; i < kRandom && !ranked_.empty(); ++i) add(batch, random_() % ranked_.size());
    ++generation_;
    return batch;
  }

 private:
  void add(Batch& batch, size_t candidate) {
    if (known_[candidate] || asked_[candidate]) return;
    asked_[candidate] = true;
    batch.candidates.push_back(candidate);
  }

  double best_time() const {
    double best = 1e300;
    for (const auto& time : times_)
      if (time) best = std::min(best, *time);
    return best;
  }

  /// Number of fields in which two configurations differ; a field that one of them lacks counts.
  static size_t distance(const Config& a, const Config& b) {
    size_t differing = 0;
    for (const auto& [name, value] : a.values()) {
      const auto it = b.values().find(name);
      differing += it == b.values().end() || it->second != value;
    }
    for (const auto& [name, value] : b.values()) differing += !a.contains(name);
    return differing;
  }

  void add_children(Batch& batch) {
    std::vector<size_t> parents;
    for (size_t i = 0; i < times_.size(); ++i)
      if (times_[i]) parents.push_back(i);
    std::stable_sort(parents.begin(), parents.end(), [&](size_t a, size_t b) { return *times_[a] < *times_[b]; });
    if (parents.size() > kParents) parents.resize(kParents);
    std::vector<size_t> children;
    for (size_t i = 0; i < ranked_.size(); ++i) {
      if (known_[i] || asked_[i]) continue;
      size_t nearest = SIZE_MAX, total = 0;
      for (const size_t parent : parents) {
        const size_t d = distance(ranked_[i], ranked_[parent]);
        nearest = std::min(nearest, d);
        total += d;
      }
      // A child differs from a parent in one field, or lies between the parents.
      if (nearest <= 1 || (parents.size() >= 2 && total <= 2 * parents.size())) children.push_back(i);
    }
    std::shuffle(children.begin(), children.end(), random_);
    for (size_t i = 0; i < children.size() && batch.candidates.size() < kPopulation - kRandom; ++i)
      add(batch, children[i]);
  }

  std::vector<bool> asked_;
  std::mt19937_64 random_;
  int generation_ = 0, stalled_ = 0;
  double best_seen_ = 1e300;
};

}  // namespace

std::unique_ptr<Strategy> make_evolutionary(const std::vector<Config>& ranked, int64_t seed) {
  return std::make_unique<Evolutionary>(ranked, seed);
}

}  // namespace seqtile::autotune
