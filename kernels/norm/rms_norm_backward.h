// kernels/norm/rms_norm_backward.h -- gradients of a root-mean-square norm's input and weight, in one launch.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "autotune/op_def.h"
#include "kernels/op/call.h"

namespace seqtile::kernels {

/// Of y = x r (weight_offset + weight) with r = 1 / sqrt(mean(x^2) + eps), which is computed again: with
/// g = dy (weight_offset + weight), dx = r (g - x r^2 mean(g x)) and dweight = the sum over the rows of dy x r.
struct RmsNormBackward {
  int64_t n = 0;
  double eps = 1e-5;
  bool residual = false;  ///< adds the gradient that reaches x beside the norm
  double weight_offset = 0;
  DType dtype = DType::f32;
  int threads = 1;

  /// Shapes: dy, x, residual, dx [length, n]; weight [n]; dweight [n] f32. x is what the norm saw: of a norm with
  /// residual, its `sum`. dx may be dy or residual.
  struct Args {
    Tensor dy, x, residual, weight, dx, dweight;
  };
  autotune::Workload workload() const;
  static Call pack(const Args& a, const autotune::Schema&);
};

autotune::OpDef rms_norm_backward();

}  // namespace seqtile::kernels
