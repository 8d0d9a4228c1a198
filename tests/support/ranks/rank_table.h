// tests/support/ranks/rank_table.h -- the operations over ranks by name, with exchange and protocol.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <string_view>
#include <vector>

#include "kernels/seqpar/exchange/exchange.h"
#include "seqtile/op.h"

namespace seqtile::testing {

struct RankTableOp {
  std::string_view name;
  /// What the kernel of a configuration exchanges; without one, all forms in the smallest chunks.
  kernels::seqpar::ExchangeShape (*exchange)(const autotune::Workload&, const autotune::Config*);
  const Protocol& (*protocol)(const autotune::Config&);
};

/// In the registry's order.
const std::vector<RankTableOp>& rank_table_ops();
/// Throws std::out_of_range where no operation over ranks has this name.
const RankTableOp& rank_table_op(std::string_view name);

}  // namespace seqtile::testing
