// bench/fused_race.h -- shared parts of races of operations that communicate: calls, errors and counters.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <functional>
#include <memory>
#include <vector>

#include "bench/environment.h"
#include "bench/operands.h"
#include "bench/rank_race.h"
#include "seqtile/fabric.h"

namespace seqtile::bench {

/// One rank's fused operation, which can run with or without waiting for the peers.
class FusedContestant {
 public:
  FusedContestant(const Environment& environment, Fabric& fabric, const autotune::Workload& workload, int64_t capacity);
  /// Launches once. `tensors` are the arguments without those of the channel.
  void run(bool waits, std::vector<Tensor> tensors, int64_t length);
  /// Errors: aborted if a rank has given up.
  void check() const;

 private:
  TunedHandle handle_;
  std::unique_ptr<Channel> waiting_, preset_;
};

/// Rows [first, first + count) of an operand.
Tensor rows_of(const Operand& operand, int64_t first, int64_t count);
/// Copies this rank's rows to `place` of every rank. Returns after all ranks have copied.
void give_rows(const RankContext& context, const Tensor& own, const std::function<void*(size_t rank)>& place);
/// The largest error of `result`, relative to 1 + |expected value|; infinite for a NaN.
double largest_error(const Operand& result, const Operand& expected);

/// Adds the counters of "fused": ratios of times of the same round, and the overlap efficiency, 1 - (T_fused - T_gemm)
/// / T_comm. An efficiency of 1 means that the computation hides all of the communication.
void compare_methods(std::vector<Result>& results);

}  // namespace seqtile::bench
