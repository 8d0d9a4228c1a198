// bench/rank_race.h -- races between methods that several ranks run together.
// SPDX-License-Identifier: Apache-2.0
//
// Ranks are threads of one core each, aligned before every timed call; a call's time is that of its slowest rank. The
// order of the methods changes at random from round to round. gloo runs in processes of its own, in turn with ours.
#pragma once
#include <barrier>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "bench/harness.h"
#include "bench/peers/child.h"
#include "jit/fabric/core/fabric.h"

namespace seqtile::bench {

constexpr int kRaceRanks = 2;

/// One rank's tensors and methods.
class Racer {
 public:
  virtual ~Racer() = default;
  virtual void run(const std::string& method) = 0;
  /// What is to come out, by copies and barriers: no launch that communicates has a part in it.
  virtual void make_reference() = 0;
  /// Whether the method leaves a result of its own, which is compared with the reference.
  virtual bool is_checked(const std::string& method) const { return method == "fused" || method == "fused_f32"; }
  /// Forgets the result of such methods: NaN.
  virtual void poison() = 0;
  /// Between the results of such a method that ran last and of the reference, over the size of the values.
  virtual double difference() const = 0;
  /// Errors: aborted where a rank has given up.
  virtual void check() const = 0;
};

/// What a rank has to meet the others with; racers are entered by all ranks at once.
struct Meeting {
  Fabric& fabric;
  std::vector<Racer*>& racers;  ///< of all ranks; complete when the first method runs
  std::barrier<>& barrier;
};

struct RankRace {
  std::function<std::unique_ptr<Racer>(const Meeting&)> enter;
  double difference_limit;
  std::string operation;  ///< as gloo's script calls it
  DType dtype;
  int64_t m, n, k;
};

/// The methods' results in the same order. "gloo" needs `gloo`. A method whose result differs has a failure.
std::vector<Result> race_ranks(const RankRace& race, const std::vector<std::string>& methods, int rounds, Child* gloo);

/// to = a + b, element by element, as fast as the machine's vectors allow; f32 or bf16.
void add_elements(DType dtype, const std::byte* a, const std::byte* b, std::byte* to, int64_t count);

/// The median of the ratios that rounds of two methods have side by side.
double median_ratio(const Result& a, const Result& b);

}  // namespace seqtile::bench
