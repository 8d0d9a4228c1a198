// tests/support/ranks/rank_table.cpp -- see rank_table.h.
// SPDX-License-Identifier: Apache-2.0
#include "tests/support/ranks/rank_table.h"

#include <algorithm>
#include <stdexcept>
#include <string>

#include "kernels/seqpar/exchange/rank_op.h"
#include "kernels/seqpar/exchange/reduction.h"
#include "kernels/seqpar/exchange/transfer.h"
#include "seqtile/ops/collectives.h"
#include "seqtile/ops/ranks.h"

namespace seqtile::testing {
namespace {

using namespace kernels::seqpar;

template <class Op>
ExchangeShape exchange(const autotune::Workload& w, const autotune::Config* config) {
  const Op op = kernels::op_of<Op>(w);
  return config ? exchange_of(op, *config) : exchange_of(op);
}

template <class... Ops>
std::vector<RankTableOp> table() {
  return {{Ops::kName, exchange<Ops>, Ops::protocol}...};
}

}  // namespace

const std::vector<RankTableOp>& rank_table_ops() {
  static const std::vector<RankTableOp> ops =
      table<FusedAllgatherAndLinear, FusedLinearAndReducescatter, LinearAndAllreduce, FusedLinearAndAlltoall,
            FusedAlltoallAndLinear, ContextAttentionForward, ContextAttentionBackward,
            SequenceParallelTrailingMatmulBackward, SequenceParallelLeadingMatmulBackward,
            SequenceParallelRmsNormBackward, AllGather, ReduceScatter, AllReduce, AllToAll, Broadcast>();
  return ops;
}

const RankTableOp& rank_table_op(std::string_view name) {
  const auto found = std::ranges::find(rank_table_ops(), name, &RankTableOp::name);
  if (found == rank_table_ops().end()) throw std::out_of_range(std::string(name));
  return *found;
}

}  // namespace seqtile::testing
