// kernels/embedding.h -- y[t] = scale * table[ids[t]].
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "autotune/op_def.h"
#include "kernels/call.h"

namespace seqtile::kernels {

/// Rows of a table by token id. An id outside of the table is refused on CPUs, and gives zeros on GPUs.
struct Embedding {
  int64_t vocab = 0, n = 0;
  double scale = 1;  ///< sqrt(n) for Gemma
  DType dtype = DType::f32;
  int threads = 1;

  /// Shapes: ids [length] i32, table [vocab, n], y [length, n].
  struct Args {
    Tensor ids, table, y;
  };
  autotune::Workload workload() const {
    return {"embedding", dtype, threads, {{"vocab", vocab}, {"n", n}, {"scale", scale}}};
  }
  static Call pack(const Args& args, const autotune::Schema&) {
    return Call(args.ids.sizes[0], {&args.ids, &args.table, &args.y});
  }
};

autotune::OpDef embedding();

}  // namespace seqtile::kernels
