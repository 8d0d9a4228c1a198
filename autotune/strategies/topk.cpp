// autotune/strategies/topk.cpp -- the eight configurations that the cost model ranks first, and a random one.
// SPDX-License-Identifier: Apache-2.0
//
// A cost model compares configurations of one form better than it compares forms, so that the eight include the first
// two of every form. The random configuration is drawn from the rest by the seed. The draws of an operation's buckets
// cover the space, so that a wrong model cannot hide a good form for ever.
#include <map>
#include <set>
#include <utility>

#include "autotune/op_def.h"
#include "autotune/strategies/strategies.h"
#include "seqtile/op.h"

namespace seqtile::autotune {
namespace {

constexpr size_t kTop = 8, kOfEachForm = 2;

class TopK final : public RememberingStrategy {
 public:
  TopK(const std::vector<Config>& ranked, int64_t seed) : RememberingStrategy(ranked), seed_(seed) {}

  Batch ask() override {
    Batch batch;
    if (std::exchange(asked_, true)) return batch;
    const std::set<size_t> top = pick_top();
    for (const size_t i : top)
      if (!known_[i]) batch.candidates.push_back(i);
    if (ranked_.size() > top.size()) {
      std::mt19937_64 random(static_cast<uint64_t>(seed_));
      std::vector<size_t> rest;
      for (size_t i = 0; i < ranked_.size(); ++i)
        if (!top.contains(i)) rest.push_back(i);
      const size_t drawn = rest[random() % rest.size()];
      if (!known_[drawn]) batch.candidates.push_back(drawn);
    }
    return batch;
  }

 private:
  std::set<size_t> pick_top() const {
    std::set<size_t> top;
    std::map<std::string, size_t> taken;  // number of configurations by form
    for (size_t i = 0; i < ranked_.size() && top.size() < kTop; ++i)
      if (taken[form_of(ranked_[i])]++ < kOfEachForm) top.insert(i);
    for (size_t i = 0; i < ranked_.size() && top.size() < kTop; ++i) top.insert(i);
    return top;
  }

  int64_t seed_;
  bool asked_ = false;
};

}  // namespace

std::unique_ptr<Strategy> make_topk(const std::vector<Config>& ranked, int64_t seed) {
  return std::make_unique<TopK>(ranked, seed);
}

}  // namespace seqtile::autotune
