// kernels/attention/attention_forward.h -- softmax(q k^T) v over a batch of sequences with their own lengths.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "autotune/op_def.h"
#include "kernels/op/call.h"

namespace seqtile::kernels {

/// Attention in one pass over the keys with a running maximum and sum (Milakov and Gimelshein 2018; Dao et al.,
/// FlashAttention, NeurIPS 2022). The longest sequence selects the bucket: `length` of a call is the largest number of
/// queries of a sequence, in phase "decode" (one query each) the largest number of keys.
struct AttentionForward {
  int64_t heads = 0, kv_heads = 0, head_dim = 0;
  std::string phase = "prefill";  ///< "prefill": as many keys as queries; "extend": more keys; "decode": one query
  bool causal = true;             ///< query i sees keys 0 .. i + (number of keys - number of queries)
  int64_t window = 0;             ///< sees only the last `window` of these; 0: all
  double soft_cap = 0;            ///< scores become soft_cap * tanh(score / soft_cap); 0: left alone
  double scale = 0;               ///< 0: 1 / sqrt(head_dim)
  DType dtype = DType::f32;
  int threads = 1;

  /// Shapes: q, out [tokens, heads, head_dim]; k, v [kv_tokens, kv_heads, head_dim]; lse [tokens, heads] f32, the
  /// natural logarithm of each row's sum of exponentials. i32: q_start [batch + 1], kv_start [batch], kv_len [batch].
  /// Sequence i has the queries q_start[i] .. q_start[i + 1] - 1, which do not fall, and kv_len[i] keys from
  /// kv_start[i] on. Rows that belong to no sequence are left as they are. Errors, on CPUs: invalid_argument where
  /// these lead out of the tensors or a sequence is longer than `length`. On GPUs such rows are left out or are other
  /// rows.
  struct Args {
    Tensor q, k, v, q_start, kv_start, kv_len, out, lse;
    int64_t length = 0;  ///< longest sequence, see above
  };
  autotune::Workload workload() const;
  static Call pack(const Args& a, const autotune::Schema&) {
    return Call(a.length, {&a.q, &a.k, &a.v, &a.q_start, &a.kv_start, &a.kv_len, &a.out, &a.lse});
  }
};

autotune::OpDef attention_forward();

}  // namespace seqtile::kernels
