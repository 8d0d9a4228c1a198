// kernels/seqpar/linear_reducescatter.h -- own rows of y = epilogue(sum over ranks of x w^T), in one launch of each.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "kernels/linear_shape.h"
#include "kernels/seqpar/exchange.h"

namespace seqtile::kernels::seqpar {

struct ReduceSchedule {
  int64_t chunk_rows = 256;  ///< rows that one flag stands for; whole blocks of the tile's rows
  int64_t sum_rows = 8;      ///< rows of a program that sums up
};

/// `transport`: what the partial sums are rounded to before they are added, the owner's own too.
ExchangeShape reduce_shape(const linear_op::Shape& shape, int world_size, int64_t identity, DType transport,
                           int64_t chunk_rows);

/// Elements of the counters for `length` rows of all ranks.
autotune::SizeExpr num_counters(const ReduceSchedule& schedule, int world_size);
/// Programs: the tiles of all ranks' rows, those that sum up, and one more.
autotune::SizeExpr reduce_programs(const linear_op::Shape& shape, const linear_op::Tile& tile,
                                   const ReduceSchedule& schedule, int world_size);

/// Parameters: x [length, k], then those of linear, y and residual [own rows, n]; then those of declare_channel().
/// One weight, or a gated pair.
void build_linear_reducescatter(KernelBuilder& b, const linear_op::Shape& shape, const linear_op::Tile& tile,
                                const ReduceSchedule& schedule, int world_size, DType transport, int64_t identity);

}  // namespace seqtile::kernels::seqpar
