// kernels/silu_and_mul.h -- y = silu(left half of x) * right half of x, for each row.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "autotune/op_def.h"
#include "kernels/call.h"

namespace seqtile::kernels {

/// The gate of a SwiGLU block for models that keep gate and up projection in one tensor.
struct SiluAndMul {
  int64_t n = 0;  ///< columns of y
  DType dtype = DType::f32;
  int threads = 1;

  /// Shapes: x [length, 2 n], y [length, n].
  struct Args {
    Tensor x, y;
  };
  autotune::Workload workload() const { return {"silu_and_mul", dtype, threads, {{"n", n}}}; }
  static Call pack(const Args& args, const autotune::Schema&) { return Call(args.x.sizes[0], {&args.x, &args.y}); }
};

autotune::OpDef silu_and_mul();

}  // namespace seqtile::kernels
