// bench/rank_race.h -- races between methods that several ranks run together.
// SPDX-License-Identifier: Apache-2.0
//
// Ranks are threads of one core each, and meet at a barrier before every timed call. The time of a call is that of its
// slowest rank. The order of the methods changes at random from round to round. gloo runs in processes of its own, in
// turn with our methods.
#pragma once
#include <barrier>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "bench/harness.h"
#include "bench/peers/child.h"
#include "seqtile/fabric.h"

namespace seqtile::bench {

constexpr int kRaceRanks = 2;

/// The tensors and methods of one rank.
class Racer {
 public:
  virtual ~Racer() = default;
  virtual void run(const std::string& method) = 0;
  /// Computes the expected result by copies and barriers, without any launch that communicates.
  virtual void make_reference() = 0;
  /// Whether the method leaves a result of its own, which is compared with the reference.
  virtual bool is_checked(const std::string& method) const { return method == "fused" || method == "fused_f32"; }
  /// Fills the results of checked methods with NaN.
  virtual void poison() = 0;
  /// The largest error of the last checked method's result, relative to the size of the values.
  virtual double difference() const = 0;
  /// Errors: aborted if a rank has given up.
  virtual void check() const = 0;
};

/// The means by which a rank meets the others. All ranks make their racers at the same time.
struct RankContext {
  Fabric& fabric;
  std::vector<Racer*>& racers;  ///< by rank; complete before the first method runs
  std::barrier<>& barrier;
};

struct RankRace {
  std::function<std::unique_ptr<Racer>(const RankContext&)> enter;
  double difference_limit;
  std::string operation;  ///< its name in gloo's script
  DType dtype;
  int64_t m, n, k;
};

/// The methods' results, in the order of `methods`. Requires: `gloo` is not null if `methods` has "gloo". A result that
/// differs from the reference is a failure.
std::vector<Result> race_ranks(const RankRace& race, const std::vector<std::string>& methods, int rounds, Child* gloo);

/// to = a + b by element, for f32 or bf16, with the machine's widest vectors.
void add_elements(DType dtype, const std::byte* a, const std::byte* b, std::byte* to, int64_t count);

/// The median over the rounds of a's time divided by b's time of the same round.
double median_ratio(const Result& a, const Result& b);

}  // namespace seqtile::bench
