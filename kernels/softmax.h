// kernels/softmax.h -- y = exp(x - max x) / sum exp(x - max x) for each row.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "autotune/op_def.h"
#include "kernels/call.h"

namespace seqtile::kernels {

/// Softmax of each row, computed in f32.
struct Softmax {
  int64_t n = 0;
  DType dtype = DType::f32;
  int threads = 1;

  /// Shapes: x, y [length, n].
  struct Args {
    Tensor x, y;
  };
  autotune::Workload workload() const { return {"softmax", dtype, threads, {{"n", n}}}; }
  static Call pack(const Args& args, const autotune::Schema&) { return Call(args.x.sizes[0], {&args.x, &args.y}); }
};

autotune::OpDef softmax();

}  // namespace seqtile::kernels
