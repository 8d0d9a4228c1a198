// kernels/rms_norm.h -- y = x / sqrt(mean(x^2) + eps) * (weight_offset + weight), also of and before a sum.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "autotune/op_def.h"
#include "kernels/call.h"

namespace seqtile::kernels {

/// Root-mean-square norm of each row (Zhang and Sennrich, NeurIPS 2019), computed in f32.
struct RmsNorm {
  int64_t n = 0;
  double eps = 1e-5;
  bool residual = false;  ///< sum = x + residual is written out, and normalised in place of x
  /// With `residual`: "sum" as above; "x": sum = norm(x) + residual alone; "both": y is the norm of that sum.
  std::string normed = "sum";
  double weight_offset = 0;  ///< 1 for Gemma, whose weights are stored as the difference from 1
  DType dtype = DType::f32;
  int threads = 1;

  /// Shapes: x, residual, y, sum [length, n]; weight, x_weight [n]. residual and sum only with `residual`; x_weight,
  /// of the norm of x, only where that is normed; weight and y not where it alone is.
  struct Args {
    Tensor x, residual{}, x_weight{}, weight{}, y{}, sum{};
  };
  autotune::Workload workload() const;
  static Call pack(const Args& args, const autotune::Schema&) {
    return Call(args.x.sizes[0], {&args.x, &args.residual, &args.x_weight, &args.weight, &args.y, &args.sum});
  }
};

autotune::OpDef rms_norm();

}  // namespace seqtile::kernels
