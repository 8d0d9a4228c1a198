// autotune/strategies/strategy.h -- which candidates to measure next.
// SPDX-License-Identifier: Apache-2.0
//
// A strategy sees ranked configurations and measured times, never a clock or a process, so every strategy runs on
// recorded trials as well. The caller asks for a batch, measures it and tells the results, until a batch is empty. The
// default configuration is measured beside every batch by the caller and needs not be asked for. Deterministic: equal
// input and seed give equal batches. Not thread-safe.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "autotune/fields.h"

namespace seqtile::autotune {

/// Some candidates, by position in the ranked list, and for how many rounds.
struct Batch {
  std::vector<size_t> candidates;
  int rounds = 7;
};

class Strategy {
 public:
  virtual ~Strategy() = default;
  /// The next batch; empty when the search is over.
  virtual Batch ask() = 0;
  /// The candidate's time relative to the default's in the same rounds; nothing when it failed. Results that were known
  /// before the search may be told before the first ask().
  virtual void tell(size_t candidate, std::optional<double> relative_time) = 0;
};

/// "exhaustive" "topk" "halving" "evolutionary". `ranked`: legal configurations, best predicted first; must outlive
/// the strategy. Errors: invalid_argument listing the names.
std::unique_ptr<Strategy> make_strategy(std::string_view name, const std::vector<Config>& ranked, int64_t seed);

}  // namespace seqtile::autotune
