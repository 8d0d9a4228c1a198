// kernels/attention/attention_backward.h -- gradients of attention's queries, keys and values, in one launch.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "autotune/op_def.h"
#include "kernels/op/call.h"

namespace seqtile::kernels {

/// The backward pass of attention_forward over a batch of sequences (Dao et al., FlashAttention, NeurIPS 2022, with
/// every product that two programs need computed by both, so that nothing is added across programs): sums are in f32
/// and in an order that only the configuration decides. `length` of a call is the largest number of queries or of keys
/// of a sequence.
struct AttentionBackward {
  int64_t heads = 0, kv_heads = 0, head_dim = 0;
  bool causal = true;  ///< query i saw keys 0 .. i + (number of keys - number of queries)
  double scale = 0;    ///< 0: 1 / sqrt(head_dim)
  DType dtype = DType::f32;
  int threads = 1;

  /// Shapes: q, out, dout, dq [tokens, heads, head_dim]; k, v, dk, dv [kv_tokens, kv_heads, head_dim]; lse
  /// [tokens, heads] f32; out and lse as attention_forward has written them. i32: q_start [batch + 1],
  /// kv_start [batch], kv_len [batch]. Keys that belong to no sequence get no gradient written.
  struct Args {
    Tensor q, k, v, out, lse, dout, q_start, kv_start, kv_len, dq, dk, dv;
    int64_t length = 0;  ///< longest sequence, see above
  };
  autotune::Workload workload() const;
  static Call pack(const Args& a, const autotune::Schema&) {
    return Call(a.length,
                {&a.q, &a.k, &a.v, &a.out, &a.lse, &a.dout, &a.q_start, &a.kv_start, &a.kv_len, &a.dq, &a.dk, &a.dv});
  }
};

autotune::OpDef attention_backward();

}  // namespace seqtile::kernels
