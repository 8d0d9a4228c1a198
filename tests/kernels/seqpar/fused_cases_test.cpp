// tests/kernels/seqpar/fused_cases_test.cpp -- fused operations as the tuner runs them: one process, peers' data
// preset. SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>

#include <string>
#include <vector>

#include "kernels/tensor_values.h"
#include "tests/support/guarded_call.h"
#include "tests/support/kernel_cases.h"

using namespace seqtile;
using namespace seqtile::testing;

namespace {

constexpr DType kDTypes[] = {DType::f32, DType::bf16, DType::f16};

KernelCase context_attention(const std::string& layout, bool causal) {
  return {"context_attention_forward",
          {{"heads", int64_t{4}},
           {"kv_heads", int64_t{2}},
           {"head_dim", int64_t{24}},
           {"causal", int64_t{causal}},
           {"layout", layout},
           {"lse", int64_t{1}},
           {"world_size", int64_t{3}}}};
}

KernelCase alltoall_linear(int64_t heads) {
  return {"fused_alltoall_and_linear",
          {{"heads", heads},
           {"head_dim", int64_t{8}},
           {"n", int64_t{40}},
           {"bias", int64_t{1}},
           {"residual", int64_t{1}},
           {"world_size", int64_t{3}}}};
}

}  // namespace

TEST_CASE("fused_allgather_and_linear: preset by one process, every dtype and length", "[seqpar][sweep]") {
  const KernelCase test_case{
      "fused_allgather_and_linear",
      {{"n", int64_t{40}}, {"n2", int64_t{24}}, {"k", int64_t{48}}, {"bias", int64_t{1}}, {"world_size", int64_t{3}}}};
  const auto device = make_cpu_device(2);
  for (const DType dtype : kDTypes) check_on(*device, test_case, dtype);
}

TEST_CASE("fused operations: preset by one process on simulated GPUs", "[seqpar][sim][sweep]") {
  const std::vector<int64_t> lengths = {1, 2, 3, 17, 64, 65, 127};
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const char* name : {"fused_allgather_and_linear", "fused_linear_and_reducescatter", "linear_and_allreduce"})
      check_simulated(
          {name, {{"n", int64_t{40}}, {"k", int64_t{48}}, {"bias", int64_t{1}}, {"world_size", int64_t{3}}}}, dtype,
          lengths);
}

// Two workers: what sums up runs beside what it waits for.
TEST_CASE("fused sums over ranks: preset by one process, every dtype, transport and length", "[seqpar][sweep]") {
  const auto device = make_cpu_device(2);
  for (const char* operation : {"fused_linear_and_reducescatter", "linear_and_allreduce"})
    for (const char* transport : {"f32", "bf16"})
      for (const DType dtype : kDTypes)
        check_on(*device,
                 {operation,
                  {{"n", int64_t{40}},
                   {"k", int64_t{48}},
                   {"residual", int64_t{1}},
                   {"norm", int64_t{transport[0] == 'f'}},
                   {"world_size", int64_t{3}},
                   {"transport", std::string(transport)}}},
                 dtype);
}

TEST_CASE("collectives: preset by one process, every dtype and length", "[seqpar]") {
  const auto device = make_cpu_device(2);
  const auto check_all = [&](const std::string& operation, autotune::Fields fields) {
    fields.set("world_size", int64_t{3});
    for (const DType dtype : kDTypes) check_on(*device, {operation, fields}, dtype);
  };
  for (const char* operation : {"all_gather", "reduce_scatter", "all_reduce", "broadcast"})
    check_all(operation, {{"n", int64_t{75}}});
  for (const int64_t heads : {6, 7})
    for (const char* direction : {"to_heads", "to_sequence"})
      check_all("all_to_all", {{"heads", heads}, {"head_dim", int64_t{20}}, {"direction", std::string(direction)}});
}

TEST_CASE("collectives: preset by one process on simulated GPUs", "[seqpar][sim]") {
  for (const char* name : {"all_gather", "reduce_scatter", "all_reduce", "broadcast"})
    check_simulated({name, {{"n", int64_t{72}}, {"world_size", int64_t{3}}}}, DType::bf16, {1, 3, 17, 64, 127});
  check_simulated({"all_to_all", {{"heads", int64_t{6}}, {"head_dim", int64_t{16}}, {"world_size", int64_t{3}}}},
                  DType::bf16, {1, 3, 17, 64, 127});
}

TEST_CASE("context attention: preset by one process, every dtype", "[seqpar][sweep]") {
  const auto device = make_cpu_device(2);
  check_on(*device, context_attention("zigzag", true), DType::bf16);
  for (const DType dtype : kDTypes) check_on(*device, context_attention("contiguous", false), dtype, {2, 65, 127});
}

TEST_CASE("context attention: preset by one process on simulated GPUs", "[seqpar][sim][sweep]") {
  check_simulated(context_attention("zigzag", true), DType::bf16, {1, 17, 127});
  check_simulated(context_attention("contiguous", true), DType::f32, {65});
}

TEST_CASE("fused_alltoall_and_linear: preset by one process, every length", "[seqpar][sweep]") {
  check_on(*make_cpu_device(2), alltoall_linear(7), DType::bf16);
  check_on(*make_cpu_device(2), alltoall_linear(6), DType::f32, {2, 65, 127});
}

TEST_CASE("fused_alltoall_and_linear: preset by one process on simulated GPUs", "[seqpar][sim][sweep]") {
  check_simulated(alltoall_linear(7), DType::bf16, {1, 17, 127});
}

namespace {

KernelCase preset(bool is_trailing, bool accumulate = false, const char* gradient = "operand",
                  const char* transport = "f32") {
  KernelCase result{"sequence_parallel_trailing_matmul_backward",
                    {{"n", int64_t{40}},
                     {"k", int64_t{49}},
                     {"accumulate", int64_t{accumulate}},
                     {"gradient", std::string(gradient)},
                     {"world_size", int64_t{3}}}};
  if (is_trailing) return result;
  result.operation = "sequence_parallel_leading_matmul_backward";
  result.fields.set("n2", int64_t{24});
  result.fields.set("transport", std::string(transport));
  return result;
}

}  // namespace

// The tuner fills weights once and calls at many lengths.
TEST_CASE("matmul backward: preset weights do not depend on the length", "[seqpar]") {
  for (const bool is_trailing : {true, false}) {
    const KernelCase test_case = preset(is_trailing);
    const autotune::OpDef& op = library_op(test_case.operation);
    const autotune::Workload workload = normalized(test_case, DType::f32);
    const GuardedCall few(op, workload, op.symbols(workload, 7), 1), many(op, workload, op.symbols(workload, 200), 1);
    for (int64_t row = 0; row < few.tensor("w").sizes[0]; ++row)
      CHECK(kernels::read_row(few.tensor("w"), row) == kernels::read_row(many.tensor("w"), row));
  }
}

TEST_CASE("matmul backward: preset by one process, every dtype", "[seqpar][sweep]") {
  const auto device = make_cpu_device(2);
  for (const bool is_trailing : {true, false}) {
    for (const DType dtype : kDTypes) check_on(*device, preset(is_trailing), dtype, {3, 65});
    check_on(*device, preset(is_trailing, true, "f32", "bf16"), DType::bf16, {17});
  }
}

TEST_CASE("matmul backward: preset by one process on simulated GPUs", "[seqpar][sim][sweep]") {
  for (const bool is_trailing : {true, false}) {
    check_simulated(preset(is_trailing), DType::f32, {65});
    check_simulated(preset(is_trailing, true, "f32", "bf16"), DType::bf16, {3});
  }
}

TEST_CASE("matmul backward: preset by one process, every dtype and length on every device", "[seqpar][sim][slow]") {
  const auto device = make_cpu_device(2);
  for (const DType dtype : kDTypes)
    for (const bool is_trailing : {true, false}) {
      check_on(*device, preset(is_trailing), dtype);
      check_on(*device, preset(is_trailing, true, "f32", "bf16"), dtype, {2, 65, 127});
      check_simulated(preset(is_trailing), dtype, {1, 2, 17, 65, 127});
      check_simulated(preset(is_trailing, true, "f32", "bf16"), dtype, {3, 64});
    }
}
