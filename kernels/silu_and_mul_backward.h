// kernels/silu_and_mul_backward.h -- the gradient of silu(left half of x) * right half of x, for each row.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "autotune/op_def.h"
#include "kernels/call.h"

namespace seqtile::kernels {

/// With s = sigmoid(gate): dgate = dy up s (1 + gate (1 - s)), dup = dy gate s; laid out as gate and up are in x.
struct SiluAndMulBackward {
  int64_t n = 0;  ///< columns of dy
  DType dtype = DType::f32;
  int threads = 1;

  /// Shapes: dy [length, n]; x, dx [length, 2 n]. dx may be x.
  struct Args {
    Tensor dy, x, dx;
  };
  autotune::Workload workload() const { return {"silu_and_mul_backward", dtype, threads, {{"n", n}}}; }
  static Call pack(const Args& a, const autotune::Schema&) { return Call(a.x.sizes[0], {&a.dy, &a.x, &a.dx}); }
};

autotune::OpDef silu_and_mul_backward();

}  // namespace seqtile::kernels
