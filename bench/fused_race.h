// bench/fused_race.h -- what races of operations that communicate have in common: their calls and what they show.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <functional>
#include <memory>
#include <vector>

#include "bench/environment.h"
#include "bench/operands.h"
#include "bench/rank_race.h"
#include "jit/fabric/core/channel.h"

namespace seqtile::bench {

/// A fused operation of one rank, with peers to wait for and without.
class FusedContestant {
 public:
  FusedContestant(const Environment& environment, Fabric& fabric, const autotune::Workload& workload, int64_t capacity);
  /// `tensors` without those of the channel.
  void run(bool waits, std::vector<Tensor> tensors, int64_t length);
  /// Errors: aborted where a rank has given up.
  void check() const;

 private:
  TunedHandle handle_;
  std::unique_ptr<Channel> waiting_, preset_;
};

Tensor rows_of(const Operand& operand, int64_t first, int64_t count);
/// Copies own rows to `place` of every rank; returns when all ranks have.
void give_rows(const Meeting& meeting, const Tensor& own, const std::function<void*(size_t rank)>& place);
/// The largest error of a sample of `result`, over the size of the values of `expected`.
double largest_error(const Operand& result, const Operand& expected);

/// Counters of "fused": ratios of what rounds gave side by side, and how much of the communication hides behind the
/// computation, all of it where the efficiency is 1.
void compare_methods(std::vector<Result>& results);

}  // namespace seqtile::bench
