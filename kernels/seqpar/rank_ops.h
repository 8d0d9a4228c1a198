// kernels/seqpar/rank_ops.h -- the operations over ranks, in one table: what each exchanges and what a rank owns.
// SPDX-License-Identifier: Apache-2.0
//
// Registry, channels, handles and tests ask this table; adding an operation is one entry.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "autotune/op_def.h"
#include "kernels/seqpar/exchange/exchange.h"

namespace seqtile::kernels::seqpar {

struct RankOp {
  std::string_view name;
  autotune::OpDef (*define)();
  /// What the kernel of a configuration exchanges; without one, in the smallest chunks that any configuration has.
  ExchangeShape (*exchange)(const autotune::Workload&, const autotune::Config*);
  /// Of the kernel of a configuration.
  const Protocol& (*protocol)(const autotune::Config&);
  /// The static arguments by which ranks may differ, their shares of the weights: weights are cut along n where outputs
  /// stay apart, along k where they are summed over the ranks.
  std::vector<std::string> shares = {};
  /// Columns that a rank owns of a tensor that is cut by heads: of queries, or of keys and values. Null: none is.
  int64_t (*columns)(const autotune::Workload&, int rank, bool of_keys) = nullptr;
};

/// In the registry's order.
const std::vector<RankOp>& rank_ops();
/// Errors: invalid_argument where no operation over ranks has this name.
const RankOp& rank_op(std::string_view name);

}  // namespace seqtile::kernels::seqpar
