// kernels/seqpar/patterns/allgather_linear.h -- y = epilogue(gather(x) w^T) in one launch of each rank.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "kernels/linear/linear_tile.h"
#include "kernels/seqpar/exchange/transfer.h"

namespace seqtile::kernels::seqpar {

/// How a launch communicates, beside the tile of its products.
struct GatherSchedule {
  static GatherSchedule from(const autotune::Config& config);
  TransferSchedule transfer;
  bool is_interleaved = false;  ///< tiles of all ranks take turns; else rank after rank, own rows first
  bool is_joined() const { return transfer.way == Transfer::join; }
  /// Groups of rows that tiles are cut from: those of each rank, or one.
  int64_t num_groups(int world_size) const { return is_joined() ? 1 : world_size; }
};

/// As transfer_schedules(), of the orders that such a product has.
std::vector<autotune::Config> gather_schedules(const autotune::Config& tiles, const Setting& s, int world_size);

ExchangeShape gather_shape(const Linear& shape, int world_size, int64_t chunk_rows);

/// Programs: those that push, the tiles of all ranks' rows, and one more.
autotune::SizeExpr gather_programs(const Linear& shape, const linear_op::Tile& tile, const GatherSchedule& schedule,
                                   int world_size);

/// The programs of such a product, in a kernel that may do other things beside it.
struct GatheredProduct {
  KernelBuilder& b;
  Exchange& ex;  ///< whose phase 0 is that of gather_shape()
  const Linear& s;
  const linear_op::Tile& t;
  const GatherSchedule& schedule;
  const linear_op::Operands operands;  ///< x has this rank's rows, y and the residual those of all ranks
  Var length;                          ///< rows of all ranks
  const int world_size = ex.world_size();
  Var row_blocks = b.cdiv(length, schedule.num_groups(world_size) * t.block_m);

  Var num_tiles();
  /// Program `program` of those that send x: the steps of the role "push".
  void push(Var program);
  /// One tile: the steps of the role "use".
  void compute(Var tile);
  void compute_joined(Var tile), compute_of_rank(Var tile);
};

/// Parameters: x [own rows, k], then those of linear, y [length, n]; then those of declare_channel(), one counter.
void build_allgather_linear(KernelBuilder& b, const Linear& shape, const linear_op::Tile& tile,
                            const GatherSchedule& schedule, const ExchangeShape& exchange);

}  // namespace seqtile::kernels::seqpar
