// kernels/seqpar/allgather_linear.h -- y = epilogue(gather(x) w^T) in one launch of each rank.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "kernels/linear_shape.h"
#include "kernels/seqpar/exchange.h"

namespace seqtile::kernels::seqpar {

/// How a launch communicates, beside the tile of its products.
struct GatherSchedule {
  int64_t chunk_rows = 256;     ///< rows that one flag stands for
  int64_t push_programs = 1;    ///< that send; as many as there are chunks: all send before anyone computes
  bool is_interleaved = false;  ///< tiles of all ranks in turn, instead of rank after rank
};

ExchangeShape gather_shape(const linear_op::Shape& shape, int world_size, int64_t identity, int64_t chunk_rows);

/// Programs: those that push, the tiles of all ranks' rows, and one more.
autotune::SizeExpr gather_programs(const linear_op::Shape& shape, const linear_op::Tile& tile,
                                   const GatherSchedule& schedule, int world_size);

/// Parameters: x [own rows, k], then those of linear, y [length, n]; then those of declare_channel(), one counter.
void build_allgather_linear(KernelBuilder& b, const linear_op::Shape& shape, const linear_op::Tile& tile,
                            const GatherSchedule& schedule, int world_size, int64_t identity);

}  // namespace seqtile::kernels::seqpar
