// tests/support/ranks/rank_operations.cpp -- see rank_operations.h.
// SPDX-License-Identifier: Apache-2.0
#include "tests/support/ranks/rank_operations.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "seqtile/error.h"
#include "seqtile/operations.h"

namespace seqtile::testing {
namespace {

using autotune::Fields;

constexpr int kWide = 256;  // columns of collectives, whose chunks are cut by bytes

/// Sums over ranks, with the epilogues that may follow them.
std::vector<Fields> sums() {
  return {
      {{"n", 24}, {"k", 16}, {"residual", 1}},
      {{"n", 24}, {"k", 16}, {"bias", 1}, {"activation", "gelu"}, {"residual", 1}, {"norm", 1}, {"transport", "bf16"}},
      {{"n", 24}, {"k", 16}, {"gated", 1}, {"activation", "silu"}, {"transport", "f16"}}};
}

/// Forms with one more head, or group of heads, than there are ranks, so that a rank has two.
std::vector<Fields> forms_of(std::string_view operation, int world_size) {
  const int more = world_size + 1;
  if (operation == "fused_allgather_and_linear")
    return {{{"n", 24}, {"k", 16}},
            {{"n", 24}, {"n2", 8}, {"n3", 16}, {"k", 16}, {"bias", 1}},
            {{"n", 24}, {"k", 16}, {"gated", 1}, {"bias", 1}, {"activation", "silu"}}};
  if (operation == "fused_linear_and_reducescatter" || operation == "linear_and_allreduce") return sums();
  if (operation == "fused_linear_and_alltoall")
    return {{{"heads", 2 * more}, {"kv_heads", more}, {"head_dim", 8}, {"k", 16}, {"bias", 1}}};
  if (operation == "fused_alltoall_and_linear")
    return {{{"heads", more}, {"head_dim", 8}, {"n", 24}, {"residual", 1}},
            {{"heads", more}, {"head_dim", 8}, {"n", 24}, {"bias", 1}, {"activation", "gelu_tanh"}}};
  if (operation == "context_attention_forward")
    return {{{"heads", 3}, {"kv_heads", 1}, {"head_dim", 8}, {"layout", "zigzag"}, {"causal", 1}, {"lse", 1}},
            {{"heads", 2}, {"kv_heads", 2}, {"head_dim", 16}, {"layout", "contiguous"}, {"causal", 0}}};
  if (operation == "context_attention_backward")
    return {{{"heads", 2}, {"kv_heads", 1}, {"head_dim", 8}, {"layout", "zigzag"}, {"causal", 1}},
            {{"heads", 2}, {"kv_heads", 2}, {"head_dim", 16}, {"layout", "contiguous"}, {"causal", 0}}};
  if (operation == "sequence_parallel_trailing_matmul_backward")
    return {{{"n", 16}, {"k", 24}}, {{"n", 24}, {"k", 16}, {"accumulate", 1}, {"gradient", "f32"}}};
  if (operation == "sequence_parallel_leading_matmul_backward")
    return {{{"n", 24}, {"k", 16}}, {{"n", 24}, {"n2", 8}, {"k", 16}, {"transport", "bf16"}, {"accumulate", 1}}};
  if (operation == "sequence_parallel_rms_norm_backward")
    return {{{"n", 24}, {"residual", 1}, {"layout", "zigzag"}}, {{"n", 40}, {"layout", "contiguous"}}};
  if (operation == "all_to_all")
    return {{{"heads", more}, {"head_dim", 128}, {"direction", "to_heads"}},
            {{"heads", more}, {"head_dim", 128}, {"direction", "to_sequence"}}};
  if (operation == "broadcast") return {{{"n", kWide}, {"root", world_size - 1}}};
  if (operation == "all_gather" || operation == "reduce_scatter" || operation == "all_reduce") return {{{"n", kWide}}};
  throw Error(ErrorCode::internal, "no test knows the operation " + std::string(operation));
}

}  // namespace

const autotune::Registry& library() {
  static const autotune::Registry registry = kernels::make_registry();
  return registry;
}

std::vector<autotune::Workload> forms_on_ranks(int world_size, DType dtype) {
  std::vector<autotune::Workload> workloads;
  for (const auto& op : library().ops()) {
    if (!op->on_rank) continue;
    for (Fields& fields : forms_of(op->name, world_size)) {
      fields.set("world_size", int64_t{world_size});
      workloads.push_back(op->normalize({op->name, dtype, 1, std::move(fields)}));
    }
  }
  return workloads;
}

std::vector<autotune::Workload> operations_on_ranks(int world_size, DType dtype) {
  std::vector<autotune::Workload> workloads;
  for (autotune::Workload& workload : forms_on_ranks(world_size, dtype))
    if (workloads.empty() || workloads.back().operation != workload.operation) workloads.push_back(std::move(workload));
  return workloads;
}

std::vector<ConfiguredOp> with_every_exchange(const std::vector<autotune::Workload>& workloads, const Target& target) {
  std::vector<ConfiguredOp> ops;
  for (const autotune::Workload& workload : workloads) {
    ops.push_back({workload});
    const auto space = library().find(workload.operation).config_space(workload, 1, target).enumerate();
    for (const auto& [name, value] : {std::pair{"reduction", "two_shot"}, std::pair{"transfer", "pull"},
                                      std::pair{"transfer", "join"}, std::pair{"order", "join"}}) {
      const auto found = std::ranges::find_if(
          space, [&](const autotune::Config& config) { return config.get_string(name, "") == value; });
      if (found != space.end()) ops.push_back({workload, *found});
    }
  }
  return ops;
}

autotune::Config with_programs(autotune::Config config, int num_programs) {
  if (config.contains("push_programs")) config.set("push_programs", int64_t{num_programs});
  return config;
}

}  // namespace seqtile::testing
