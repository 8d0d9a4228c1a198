// autotune/strategies/exhaustive.cpp -- every configuration of the space.
// SPDX-License-Identifier: Apache-2.0
#include "autotune/strategies/strategies.h"

namespace seqtile::autotune {
namespace {

constexpr size_t kBatch = 16;  // a killed run loses at most the results of one batch

class Exhaustive final : public RememberingStrategy {
 public:
  explicit Exhaustive(const std::vector<Config>& ranked) : RememberingStrategy(ranked) {}

  Batch ask() override {
    Batch batch;
    for (; next_ < ranked_.size() && batch.candidates.size() < kBatch; ++next_)
      if (!known_[next_]) batch.candidates.push_back(next_);
    return batch;
  }

 private:
  size_t next_ = 0;
};

}  // namespace

std::unique_ptr<Strategy> make_exhaustive(const std::vector<Config>& ranked) {
  return std::make_unique<Exhaustive>(ranked);
}

}  // namespace seqtile::autotune
