// kernels/registry.cpp -- see registry.h.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/registry.h"

#include "kernels/attention_backward.h"
#include "kernels/attention_forward.h"
#include "kernels/embedding.h"
#include "kernels/layer_norm.h"
#include "kernels/linear.h"
#include "kernels/linear_wgrad.h"
#include "kernels/rms_norm.h"
#include "kernels/rms_norm_backward.h"
#include "kernels/rope.h"
#include "kernels/seqpar/alltoall_linear.h"
#include "kernels/seqpar/collectives.h"
#include "kernels/seqpar/context_attention.h"
#include "kernels/seqpar/context_attention_backward.h"
#include "kernels/seqpar/fused_linear.h"
#include "kernels/seqpar/linear_alltoall.h"
#include "kernels/seqpar/matmul_backward.h"
#include "kernels/seqpar/norm_backward.h"
#include "kernels/silu_and_mul.h"
#include "kernels/silu_and_mul_backward.h"
#include "kernels/softmax.h"

namespace seqtile::kernels {

autotune::Registry make_registry() {
  autotune::Registry registry;
  registry.add(linear());
  registry.add(linear_wgrad());
  registry.add(attention_forward());
  registry.add(attention_backward());
  registry.add(rms_norm());
  registry.add(rms_norm_backward());
  registry.add(layer_norm());
  registry.add(rope());
  registry.add(silu_and_mul());
  registry.add(silu_and_mul_backward());
  registry.add(softmax());
  registry.add(embedding());
  registry.add(seqpar::fused_allgather_and_linear());
  registry.add(seqpar::fused_linear_and_reducescatter());
  registry.add(seqpar::linear_and_allreduce());
  registry.add(seqpar::fused_linear_and_alltoall());
  registry.add(seqpar::fused_alltoall_and_linear());
  registry.add(seqpar::context_attention_forward());
  registry.add(seqpar::context_attention_backward());
  registry.add(seqpar::sequence_parallel_trailing_matmul_backward());
  registry.add(seqpar::sequence_parallel_leading_matmul_backward());
  registry.add(seqpar::sequence_parallel_rms_norm_backward());
  registry.add(seqpar::all_gather());
  registry.add(seqpar::reduce_scatter());
  registry.add(seqpar::all_reduce());
  registry.add(seqpar::all_to_all());
  registry.add(seqpar::broadcast());
  return registry;
}

}  // namespace seqtile::kernels
