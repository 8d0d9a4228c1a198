// autotune/strategies/strategy.cpp -- makes a strategy by its name.
// SPDX-License-Identifier: Apache-2.0
#include "autotune/strategies/strategies.h"
#include "jit/base/nearest_word.h"
#include "seqtile/error.h"

namespace seqtile::autotune {

std::unique_ptr<Strategy> make_strategy(std::string_view name, const std::vector<Config>& ranked, int64_t seed) {
  if (name == "exhaustive") return make_exhaustive(ranked);
  if (name == "topk") return make_topk(ranked, seed);
  if (name == "halving") return make_halving(ranked);
  if (name == "evolutionary") return make_evolutionary(ranked, seed);
  throw Error(ErrorCode::invalid_argument, "no strategy is called \"" + std::string(name) +
                                               "\"; there are: exhaustive, topk, halving, evolutionary" +
                                               did_you_mean(name, {"exhaustive", "topk", "halving", "evolutionary"}));
}

}  // namespace seqtile::autotune
