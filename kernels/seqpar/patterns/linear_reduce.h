// kernels/seqpar/patterns/linear_reduce.h -- epilogue(sum over ranks of x w^T), in one launch of each.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "kernels/linear/linear_config.h"
#include "kernels/seqpar/exchange/reduction.h"

namespace seqtile::kernels::seqpar {

/// An epilogue behind the sums: the root-mean-square norm of the rows of y goes to a second output.
struct NormEpilogue {
  bool is_there = false;
  double eps = 1e-5;
};

/// The partial results of a product; one weight, or a gated pair.
PartialShape partial_products(const Linear& shape, const linear_op::Tile& tile, DType transport,
                              const NormEpilogue& norm);

/// Parameters: x [length, k], then those of linear, y and residual [own rows, n], or [length, n] where every rank gets
/// all rows; with a norm its weight [n] and normed, like y; then those of declare_channel().
void build_linear_reduce(KernelBuilder& b, const Linear& shape, const linear_op::Tile& tile,
                         const ReduceSchedule& schedule, ReduceForm form, DType transport,
                         const ExchangeShape& exchange, const NormEpilogue& norm = {});

}  // namespace seqtile::kernels::seqpar
