// kernels/layer_norm.h -- y = (x - mean) / sqrt(variance + eps) * weight + bias for each row.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "autotune/op_def.h"
#include "kernels/call.h"

namespace seqtile::kernels {

/// Layer norm of each row, computed in f32; the variance is taken about the mean, in a second pass over the row.
struct LayerNorm {
  int64_t n = 0;
  double eps = 1e-5;
  bool bias = true;
  bool residual = false;  ///< sum = x + residual is written out, and normalised in place of x
  DType dtype = DType::f32;
  int threads = 1;

  /// Shapes: x, residual, y, sum [length, n]; weight, bias [n]. bias only with `bias`, residual and sum with
  /// `residual`.
  struct Args {
    Tensor x, residual{}, weight, bias{}, y, sum{};
  };
  autotune::Workload workload() const;
  static Call pack(const Args& args, const autotune::Schema&) {
    return Call(args.x.sizes[0], {&args.x, &args.residual, &args.weight, &args.bias, &args.y, &args.sum});
  }
};

autotune::OpDef layer_norm();

}  // namespace seqtile::kernels
