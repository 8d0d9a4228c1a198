// kernels/rope.h -- rotary position embedding of query and key heads.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "autotune/op_def.h"
#include "kernels/call.h"

namespace seqtile::kernels {

/// Rotates pairs of each head's first `rotary_dim` elements by position * theta^(-2 i / rotary_dim) and copies the
/// rest. Source: Su et al., RoFormer (2021); frequency scaling "llama3" as Llama 3.1 published it.
struct Rope {
  int64_t heads = 0, kv_heads = 0, head_dim = 0;
  int64_t rotary_dim = 0;  ///< 0: head_dim
  double theta = 10000;
  std::string style = "half";    ///< pair i is (i, i + rotary_dim / 2): "half"; (2 i, 2 i + 1): "interleaved"
  bool inverse = false;          ///< by the opposite angles: the gradient of the input from that of the output
  std::string scaling = "none";  ///< "none" | "llama3"; the four fields below belong to "llama3"
  double factor = 8, low_freq_factor = 1, high_freq_factor = 4;
  int64_t original_max_position = 8192;
  DType dtype = DType::f32;
  int threads = 1;

  /// Shapes: q, q_out [length, heads, head_dim]; k, k_out [length, kv_heads, head_dim]; positions [length] i32.
  /// In place (q_out over q, k_out over k) is allowed.
  struct Args {
    Tensor q, k, positions, q_out, k_out;
  };
  autotune::Workload workload() const;
  static Call pack(const Args& args, const autotune::Schema&) {
    return Call(args.q.sizes[0], {&args.q, &args.k, &args.positions, &args.q_out, &args.k_out});
  }
};

autotune::OpDef rope();

}  // namespace seqtile::kernels
