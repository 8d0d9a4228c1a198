// autotune/strategies/strategy.h -- the interface of a search algorithm, which picks the candidates to measure next.
// SPDX-License-Identifier: Apache-2.0
//
// A strategy sees ranked configurations and measured times, but no clock and no process, so that it also runs on
// recorded trials. The caller asks for a batch, measures it and tells the results, until a batch is empty. The caller
// measures the baseline beside every batch; a strategy need not ask for it. Strategies are deterministic: equal input
// and seed give equal batches. Not thread-safe.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "seqtile/op.h"

namespace seqtile::autotune {

/// Candidates to measure, and the number of rounds.
struct Batch {
  std::vector<size_t> candidates;  ///< positions in the ranked list
  int rounds = 7;
};

class Strategy {
 public:
  virtual ~Strategy() = default;
  /// The next batch; empty when the search is over.
  virtual Batch ask() = 0;
  /// Tells a result: the candidate's time relative to the baseline's in the same rounds, or nullopt if the candidate
  /// failed. Results of earlier searches may be told before the first ask().
  virtual void tell(size_t candidate, std::optional<double> relative_time) = 0;
};

/// Makes the strategy "exhaustive", "topk", "halving" or "evolutionary". `ranked`: legal configurations, best predicted
/// first. Requires: `ranked` outlives the strategy. Errors: invalid_argument on another name; it lists the four.
std::unique_ptr<Strategy> make_strategy(std::string_view name, const std::vector<Config>& ranked, int64_t seed);

}  // namespace seqtile::autotune
