// kernels/linear/linear_wgrad.h -- dw = dy^T x, the gradient of a linear layer's weight, summed over the rows.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "autotune/op_def.h"
#include "kernels/op/call.h"

namespace seqtile::kernels {

/// The other half of the backward pass of y = x w^T; the gradient of x is linear with weight_layout = transposed. Sums
/// run over the rows that there are, in f32 and in one order that only the configuration decides.
struct LinearWgrad {
  int64_t n = 0, k = 0;       ///< of the weight [n, k]
  bool accumulate = false;    ///< adds to what dw holds
  bool f32_gradient = false;  ///< dw is f32, whatever x and dy are: main gradients
  DType dtype = DType::f32;
  int threads = 1;

  /// Shapes: dy [length, n], x [length, k], dw [n, k].
  struct Args {
    Tensor dy, x, dw;
  };
  autotune::Workload workload() const;
  /// With `accumulate` the operation reads `before`, which is dw itself here.
  static Call pack(const Args& a, const autotune::Schema& schema) {
    Call call(a.x.sizes[0], {&a.dy, &a.x});
    if (schema.args.size() == 4) call.add(a.dw);
    call.add(a.dw);
    return call;
  }
};

autotune::OpDef linear_wgrad();

}  // namespace seqtile::kernels
