// autotune/strategies/topk.cpp -- the configurations that the model ranks first, and one from the rest.
// SPDX-License-Identifier: Apache-2.0
//
// The one from the rest is drawn at random by the seed, so that a wrong model cannot hide a good form for ever: over
// the buckets of an operation the draws cover the space.
#include <algorithm>
#include <utility>

#include "autotune/strategies/strategies.h"

namespace seqtile::autotune {
namespace {

constexpr size_t kTop = 8;

class TopK final : public RememberingStrategy {
 public:
  TopK(const std::vector<Config>& ranked, int64_t seed) : RememberingStrategy(ranked), seed_(seed) {}

  Batch ask() override {
    Batch batch;
    if (std::exchange(asked_, true)) return batch;
    const size_t top = std::min(kTop, ranked_.size());
    for (size_t i = 0; i < top; ++i)
      if (!known_[i]) batch.candidates.push_back(i);
    if (ranked_.size() > top) {
      std::mt19937_64 random(static_cast<uint64_t>(seed_));
      const size_t drawn = top + random() % (ranked_.size() - top);
      if (!known_[drawn]) batch.candidates.push_back(drawn);
    }
    return batch;
  }

 private:
  int64_t seed_;
  bool asked_ = false;
};

}  // namespace

std::unique_ptr<Strategy> make_topk(const std::vector<Config>& ranked, int64_t seed) {
  return std::make_unique<TopK>(ranked, seed);
}

}  // namespace seqtile::autotune
