// tests/kernels/seqpar/fused_cases_test.cpp -- fused operations with preset data of peers, as in the tuner.
// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>

#include <string>

#include "seqtile/kernel.h"
#include "tests/support/kernels/kernel_table.h"

using namespace seqtile;
using namespace seqtile::testing;

namespace {

void check_on_cpu(const std::string& group) {
  const auto device = make_cpu_device(2);  // two workers: sums run beside the programs that they wait for
  for (const TableCase& c : cases_of(group))
    for (const DType dtype : kKernelDTypes) check_on(*device, c.kernel, dtype, c.lengths);
}

/// Calls `check` with each case of a group and the next dtype in turn. Slow tests take all dtypes.
template <class Check>
void in_turn(const std::string& group, const Check& check) {
  size_t next = 1;
  for (const TableCase& c : cases_of(group)) check(c, kKernelDTypes[next++ % std::size(kKernelDTypes)]);
}

void check_in_turn(const std::string& group) {
  const auto device = make_cpu_device(2);
  in_turn(group, [&](const TableCase& c, DType dtype) { check_on(*device, c.kernel, dtype, c.lengths); });
}

void simulate_in_turn(const std::string& group) {
  in_turn(group, [](const TableCase& c, DType dtype) { check_simulated(c.kernel, dtype, c.few); });
}

}  // namespace

TEST_CASE("operations over ranks: preset by one process, every dtype and length", "[seqpar][slow]") {
  for (const CaseGroup& group : rank_table()) check_on_cpu(group.name);
}

TEST_CASE("fused_allgather_and_linear: preset by one process, every dtype and length", "[seqpar][sweep]") {
  check_on_cpu("fused_allgather_and_linear");
}

TEST_CASE("fused sums over ranks: preset by one process, every dtype, transport and length", "[seqpar][sweep]") {
  check_on_cpu("fused sums over ranks");
}

TEST_CASE("fused operations: preset by one process on simulated GPUs", "[seqpar][sim][sweep]") {
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const char* group : {"fused_allgather_and_linear", "fused sums over ranks"})
      for (const TableCase& c : cases_of(group)) check_simulated(c.kernel, dtype, c.few);
}

TEST_CASE("fused operations: tf32 on request on simulated GPUs", "[seqpar][sim]") {
  for (const char* operation : {"fused_allgather_and_linear", "fused_linear_and_reducescatter"})
    check_simulated(
        {operation,
         {{"world_size", int64_t{2}}, {"n", int64_t{40}}, {"k", int64_t{64}}, {"precision", std::string("tf32")}}},
        DType::f32, {17});
}

TEST_CASE("collectives: preset by one process, every dtype and length", "[seqpar]") { check_on_cpu("collectives"); }

TEST_CASE("collectives: preset by one process on simulated GPUs", "[seqpar][sim]") { simulate_in_turn("collectives"); }

TEST_CASE("context attention: preset by one process, every layout", "[seqpar][sweep]") {
  check_in_turn("context_attention_forward");
}

TEST_CASE("context attention: preset by one process on simulated GPUs", "[seqpar][sim][sweep]") {
  simulate_in_turn("context_attention_forward");
}

TEST_CASE("context attention backward: preset by one process, every layout", "[seqpar][sweep]") {
  check_in_turn("context_attention_backward");
}

TEST_CASE("context attention backward: preset by one process on simulated GPUs", "[seqpar][sim][sweep]") {
  simulate_in_turn("context_attention_backward");
}

TEST_CASE("fused_alltoall_and_linear: preset by one process, every length", "[seqpar][sweep]") {
  check_in_turn("fused_alltoall_and_linear");
}

TEST_CASE("fused_alltoall_and_linear: preset by one process on simulated GPUs", "[seqpar][sim][sweep]") {
  simulate_in_turn("fused_alltoall_and_linear");
}

TEST_CASE("fused_linear_and_alltoall: preset by one process, every length", "[seqpar][sweep]") {
  check_in_turn("fused_linear_and_alltoall");
}

TEST_CASE("fused_linear_and_alltoall: preset by one process on simulated GPUs", "[seqpar][sim][sweep]") {
  simulate_few("fused_linear_and_alltoall");
}

TEST_CASE("sequence-parallel norm backward: preset by one process, every dtype", "[seqpar]") {
  check_on_cpu("sequence_parallel_rms_norm_backward");
}

TEST_CASE("sequence-parallel norm backward: preset by one process on simulated GPUs", "[seqpar][sim]") {
  simulate_few("sequence_parallel_rms_norm_backward");
}

TEST_CASE("matmul backward: preset by one process", "[seqpar][sweep]") { check_in_turn("matmul backward"); }

TEST_CASE("matmul backward: preset by one process on simulated GPUs", "[seqpar][sim][sweep]") {
  simulate_in_turn("matmul backward");
}

// The tuner fills weights once and calls at many lengths.
TEST_CASE("matmul backward: preset weights do not depend on the length", "[seqpar]") {
  for (const TableCase& c : cases_of("matmul backward")) {
    const KernelCase& test_case = c.kernel;
    const autotune::OpDef& op = library_op(test_case.operation);
    const autotune::Workload workload = normalized(test_case, DType::f32);
    const GuardedCall few(op, workload, op.symbols(workload, 7), 1), many(op, workload, op.symbols(workload, 200), 1);
    for (int64_t row = 0; row < few.tensor("w").sizes[0]; ++row)
      CHECK(read_row(few.tensor("w"), row) == read_row(many.tensor("w"), row));
  }
}
