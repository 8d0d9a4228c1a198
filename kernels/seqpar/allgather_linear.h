// kernels/seqpar/allgather_linear.h -- y = epilogue(gather(x) w^T) in one launch of each rank.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "kernels/linear_tile.h"
#include "kernels/seqpar/exchange.h"

namespace seqtile::kernels::seqpar {

/// In which order a launch computes its tiles.
enum class GatherOrder : uint8_t {
  rotate,      ///< rank after rank, own rows first
  interleave,  ///< those of all ranks in turn
  serial       ///< the same, and none before all rows of all ranks have come: communicate, then compute
};
/// Of a configuration: its parameter "order".
GatherOrder gather_order(const autotune::Config& config);

/// How a launch communicates, beside the tile of its products.
struct GatherSchedule {
  int64_t chunk_rows = 256;   ///< rows that one flag stands for
  int64_t push_programs = 1;  ///< that send; as many as there are chunks: all send before anyone computes
  GatherOrder order = GatherOrder::rotate;
};

/// The tiles with every order, size of chunks and number of programs that push, the default first. Programs: of
/// push_programs().
std::vector<autotune::Config> gather_schedules(const autotune::Config& tiles, const std::vector<int64_t>& programs);

ExchangeShape gather_shape(const linear_op::Shape& shape, int world_size, int64_t identity, int64_t chunk_rows);

/// Programs: those that push, the tiles of all ranks' rows, and one more.
autotune::SizeExpr gather_programs(const linear_op::Shape& shape, const linear_op::Tile& tile,
                                   const GatherSchedule& schedule, int world_size);

/// What the programs of such a product do, in a kernel that may do other things beside it.
class GatheredProduct {
 public:
  /// `operands`: x has this rank's rows, y and the residual those of all ranks, `length` of them. The exchange's phase
  /// 0 is that of gather_shape().
  GatheredProduct(KernelBuilder& b, Exchange& ex, const linear_op::Shape& shape, const linear_op::Tile& tile,
                  const GatherSchedule& schedule, int world_size, linear_op::Operands operands, Var length);
  Var num_tiles();
  /// Program `program` of those that send x: the steps of the role "push".
  void push(Var program);
  /// One tile: the steps of the role "use".
  void compute(Var tile);

 private:
  Var await_rows_of_all(Var tile);
  KernelBuilder& b_;
  Exchange& ex_;
  const linear_op::Shape& s_;
  const linear_op::Tile& t_;
  const GatherSchedule schedule_;
  const int world_size_;
  linear_op::Operands v_;
  Var row_blocks_;
};

/// Parameters: x [own rows, k], then those of linear, y [length, n]; then those of declare_channel(), one counter.
void build_allgather_linear(KernelBuilder& b, const linear_op::Shape& shape, const linear_op::Tile& tile,
                            const GatherSchedule& schedule, int world_size, int64_t identity);

}  // namespace seqtile::kernels::seqpar
