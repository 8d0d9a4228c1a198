// kernels/seqpar/patterns/context_op.h -- attention over the ranks' keys, and its backward pass: tiles and schedules.
// SPDX-License-Identifier: Apache-2.0
//
// Both compute with own rows what an operation of one rank, here called plain, computes with all rows. They take its
// tiles, and add how a launch communicates.
#pragma once
#include <functional>

#include "seqtile/op.h"
#include "seqtile/seqpar.h"

namespace seqtile::kernels::seqpar {

class ContextOp {
 public:
  /// The threads of a GPU hold the values of a tile beside what they know of the ranks.
  using LeavesRoom = std::function<bool(const autotune::Config& tile, const Target& target)>;
  /// `attention`: the workload of `plain` that has all rows. Requires: `plain` outlives the object.
  ContextOp(const autotune::OpDef& plain, autotune::Workload attention, const Ranks& ranks, RowLayout layout,
            LeavesRoom leaves_room);

  /// Every tile has one schedule, the default tile all of them. Chunks are whole blocks of `block_n` rows.
  std::vector<autotune::Config> configs(int threads, int64_t length, const Target& target) const;
  autotune::Config default_config(int threads, int64_t length, const Target& target) const;
  double predict_us(const autotune::Config& config, int threads, int64_t length, const Target& target) const;
  autotune::Cost cost(int64_t length) const;
  autotune::OpDef::Tolerance tolerance(int64_t length) const;

 private:
  int64_t rows_of_rank(int64_t length) const;
  std::vector<autotune::Config> schedules(const autotune::Config& tile, int threads, const Target& target) const;
  std::vector<autotune::Config> tiles(int threads, int64_t length, const Target& target) const;
  autotune::Config default_tile(int threads, int64_t length, const Target& target) const;
  autotune::Workload with_threads(int threads) const;

  const autotune::OpDef& plain_;
  const autotune::Workload attention_;
  const Ranks ranks_;
  const RowLayout layout_;
  const LeavesRoom leaves_room_;
};

}  // namespace seqtile::kernels::seqpar
