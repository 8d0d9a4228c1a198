// kernels/registry.cpp -- see seqtile/operations.h.
// SPDX-License-Identifier: Apache-2.0
#include "seqtile/operations.h"

namespace seqtile::kernels {

autotune::Registry make_registry() {
  using namespace seqpar;
  autotune::Registry registry;
  for (autotune::OpDef (*const define)() : {linear,
                                            linear_wgrad,
                                            grouped_linear,
                                            attention_forward,
                                            attention_backward,
                                            rms_norm,
                                            rms_norm_backward,
                                            layer_norm,
                                            rope,
                                            act_and_mul,
                                            act_and_mul_backward,
                                            softmax,
                                            embedding,
                                            fused_allgather_and_linear,
                                            fused_linear_and_reducescatter,
                                            linear_and_allreduce,
                                            fused_linear_and_alltoall,
                                            fused_alltoall_and_linear,
                                            context_attention_forward,
                                            context_attention_backward,
                                            sequence_parallel_trailing_matmul_backward,
                                            sequence_parallel_leading_matmul_backward,
                                            sequence_parallel_rms_norm_backward,
                                            all_gather,
                                            reduce_scatter,
                                            all_reduce,
                                            all_to_all,
                                            broadcast})
    registry.add(define());
  return registry;
}

}  // namespace seqtile::kernels

namespace seqtile {

std::unique_ptr<Engine> open_engine(const EngineOptions& options) {
  return Engine::open(options, kernels::make_registry());
}

std::unique_ptr<Engine> open_engine(const EngineOptions& options, Fabric& fabric) {
  return Engine::open(options, kernels::make_registry(), fabric);
}

}  // namespace seqtile
