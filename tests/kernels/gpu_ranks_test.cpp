// tests/kernels/gpu_ranks_test.cpp -- operations over ranks on one GPU: what the peers send is preset.
// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>

#include <string>
#include <vector>

#include "tests/support/kernel_cases.h"

namespace seqtile::testing {
namespace {

constexpr const char* kCollectives[] = {"all_gather", "reduce_scatter", "all_reduce", "broadcast"};
constexpr const char* kProducts[] = {"fused_allgather_and_linear", "fused_linear_and_reducescatter",
                                     "linear_and_allreduce"};

/// Every operation over ranks, as one of three.
std::vector<KernelCase> cases_of_ranks() {
  const autotune::Fields heads{{"heads", int64_t{6}}, {"head_dim", int64_t{16}}, {"world_size", int64_t{3}}};
  const autotune::Fields matrix{{"n", int64_t{72}}, {"k", int64_t{48}}, {"world_size", int64_t{3}}};
  std::vector<KernelCase> cases;
  for (const char* name : kCollectives) cases.push_back({name, {{"n", int64_t{72}}, {"world_size", int64_t{3}}}});
  for (const char* name : kProducts) cases.push_back({name, matrix});
  for (const char* name : {"sequence_parallel_leading_matmul_backward", "sequence_parallel_trailing_matmul_backward"})
    cases.push_back({name, matrix});
  cases.push_back({"sequence_parallel_rms_norm_backward", {{"n", int64_t{72}}, {"world_size", int64_t{3}}}});
  cases.push_back({"all_to_all", heads});
  cases.push_back({"fused_alltoall_and_linear", heads});
  cases.back().fields.set("n", int64_t{40});
  cases.push_back({"fused_linear_and_alltoall", heads});
  cases.back().fields.set("k", int64_t{40});
  for (const char* name : {"context_attention_forward", "context_attention_backward"}) {
    cases.push_back({name, heads});
    cases.back().fields.set("layout", std::string("zigzag"));
  }
  for (KernelCase& test_case : cases)
    if (test_case.operation == "fused_linear_and_alltoall" || test_case.operation.starts_with("context"))
      test_case.fields.set("kv_heads", int64_t{2});
  return cases;
}

}  // namespace

TEST_CASE("gpu: operations over ranks agree with the reference where the peers' data is preset", "[seqpar][gpu]") {
  const auto device = open_gpu();
  if (!device) return;
  for (const KernelCase& test_case : cases_of_ranks())
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) check_on(*device, test_case, dtype, {1, 17, 127});
}

// So that the cases are known to be right before a GPU runs them.
TEST_CASE("gpu: the cases of operations over ranks on simulated GPUs", "[seqpar][sim][slow]") {
  for (const KernelCase& test_case : cases_of_ranks()) check_simulated(test_case, DType::bf16, {17});
}

}  // namespace seqtile::testing
