// kernels/registry.cpp -- see seqtile/operations.h.
// SPDX-License-Identifier: Apache-2.0
#include "seqtile/operations.h"

namespace seqtile::kernels {

autotune::Registry make_registry() {
  autotune::Registry registry;
  registry.add(linear());
  registry.add(linear_wgrad());
  registry.add(grouped_linear());
  registry.add(attention_forward());
  registry.add(attention_backward());
  registry.add(rms_norm());
  registry.add(rms_norm_backward());
  registry.add(layer_norm());
  registry.add(rope());
  registry.add(act_and_mul());
  registry.add(act_and_mul_backward());
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

namespace seqtile {

std::unique_ptr<Engine> open_engine(const EngineOptions& options) {
  return Engine::open(options, kernels::make_registry());
}

std::unique_ptr<Engine> open_engine(const EngineOptions& options, Fabric& fabric) {
  return Engine::open(options, kernels::make_registry(), fabric);
}

}  // namespace seqtile
