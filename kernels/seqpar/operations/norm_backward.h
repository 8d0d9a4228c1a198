// kernels/seqpar/operations/norm_backward.h -- a norm's gradients over own rows, its weight's summed over ranks in the
// launch.
// SPDX-License-Identifier: Apache-2.0
//
// A norm's weight is whole on every rank and all rows add to its gradient. Each rank sends the sum over its own rows,
// one row in f32, to all others; every rank adds them up from rank 0 on and gets the same bits.
#pragma once
#include <string>

#include "autotune/op_def.h"
#include "kernels/op/call.h"
#include "kernels/seqpar/exchange/exchange.h"
#include "kernels/seqpar/exchange/ranks.h"

namespace seqtile::kernels::seqpar {

/// RmsNormBackward of own rows, with dweight summed over the rows of all ranks. A rank without rows takes part.
struct SequenceParallelRmsNormBackward {
  int64_t n = 0;
  double eps = 1e-5;
  bool residual = false;  ///< adds the gradient that reaches x beside the norm
  double weight_offset = 0;
  std::string layout = "contiguous";  ///< "contiguous" | "zigzag": how many rows a rank owns
  DType dtype = DType::f32;

  /// Shapes: dy, x, residual, dx [own rows, n]; weight [n]; dweight [n] f32. x is what the norm saw: of a norm with
  /// residual, its sum. dx may be dy or residual.
  struct Args {
    Tensor dy, x, residual, weight, dx, dweight;
  };
  autotune::Workload workload(const Ranks& ranks) const;
  static Call pack(const Args& a, int64_t length);
};

/// What the operation exchanges.
ExchangeShape norm_backward_exchange(const autotune::Workload& workload);

autotune::OpDef sequence_parallel_rms_norm_backward();

}  // namespace seqtile::kernels::seqpar
