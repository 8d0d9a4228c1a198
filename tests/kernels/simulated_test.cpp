// tests/kernels/simulated_test.cpp -- every kernel compiled for GPUs, against the reference: simulated with all checks,
// and on the GPU if there is one.
// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>

#include <set>

#include "kernels/registry.h"
#include "tests/support/kernels/kernel_table.h"

namespace seqtile::testing {
namespace {

/// Checks all lengths of the group's first case, and the few lengths of a default run for the other cases.
void run_on_gpu(const std::string& group) {
  const auto device = open_gpu();
  if (!device) return;
  const std::vector<TableCase>& cases = cases_of(group);
  for (const TableCase& c : cases)
    for (const DType dtype : kKernelDTypes)
      check_on(*device, c.kernel, dtype, &c == &cases.front() ? c.lengths : c.few);
}

}  // namespace

TEST_CASE("simulated: the tables have cases of every operation of the library", "[kernels]") {
  std::set<std::string> in_library, in_tables;
  const autotune::Registry library = kernels::make_registry();
  for (const auto& op : library.ops()) in_library.insert(op->name);
  for (const auto* table : {&kernel_table(), &rank_table()})
    for (const CaseGroup& group : *table)
      for (const TableCase& c : group.cases) {
        INFO(group.name);
        CHECK(!c.lengths.empty());
        in_tables.insert(c.kernel.operation);
      }
  CHECK(in_tables == in_library);
}

TEST_CASE("simulated: rms_norm, with and without residual", "[kernels][sim][sweep]") { simulate_few("rms_norm"); }
TEST_CASE("simulated: rms_norm_backward", "[kernels][sim][sweep]") { simulate_few("rms_norm_backward"); }
TEST_CASE("simulated: silu_and_mul_backward", "[kernels][sim][sweep]") { simulate_few("silu_and_mul_backward"); }
TEST_CASE("simulated: layer_norm, with and without bias", "[kernels][sim][sweep]") { simulate_few("layer_norm"); }
TEST_CASE("simulated: softmax", "[kernels][sim][sweep]") { simulate_few("softmax"); }
TEST_CASE("simulated: silu_and_mul", "[kernels][sim][sweep]") { simulate_few("silu_and_mul"); }
TEST_CASE("simulated: embedding", "[kernels][sim][sweep]") { simulate_few("embedding"); }
TEST_CASE("simulated: rope, half and interleaved, partial and scaled", "[kernels][sim][sweep]") {
  simulate_few("rope");
}
TEST_CASE("simulated: linear at the models' awkward dimensions", "[kernels][sim][sweep]") { simulate_few("linear"); }
TEST_CASE("simulated: linear with everything that is fused into it", "[kernels][sim][sweep]") {
  simulate_few("linear with all that is fused");
}
TEST_CASE("simulated: linear with transposed weights", "[kernels][sim]") { simulate_few("linear, transposed"); }
TEST_CASE("simulated: linear_wgrad", "[kernels][sim][sweep]") { simulate_few("linear_wgrad"); }
TEST_CASE("simulated: attention_backward", "[kernels][sim][sweep]") { simulate_few("attention_backward"); }
TEST_CASE("simulated: attention prefill", "[kernels][sim][sweep]") { simulate_few("attention prefill"); }
TEST_CASE("simulated: attention extend", "[kernels][sim][sweep]") { simulate_few("attention extend"); }
TEST_CASE("simulated: attention decode", "[kernels][sim][sweep]") { simulate_few("attention decode"); }
TEST_CASE("simulated: attention, head dimensions, windows, soft caps, no mask", "[kernels][sim][sweep]") {
  simulate_few("attention variants");
}

TEST_CASE("simulated: every operation at every length that CPUs take", "[kernels][sim][slow]") {
  for (const CaseGroup& group : kernel_table()) simulate_all(group.name);
}

TEST_CASE("simulated: every operation over ranks at every length that CPUs take", "[seqpar][sim][slow]") {
  for (const CaseGroup& group : rank_table()) simulate_all(group.name);
}

TEST_CASE("cpus: every operation at every length on every target", "[kernels][slow]") {
  for (const CaseGroup& group : kernel_table()) check_all_on_cpus(group.name);
}

// Each group is a case of its own, so that tools/gpu_check.sh runs them at the same time.
#define SEQTILE_GROUPS(EACH) \
  EACH("rms_norm") EACH("rms_norm_backward") EACH("layer_norm") EACH("softmax") EACH("silu_and_mul") \
  EACH("silu_and_mul_backward") EACH("embedding") EACH("rope") EACH("linear") EACH("linear with all that is fused") \
  EACH("linear, wide and fused") EACH("linear, transposed") EACH("linear_wgrad") EACH("attention prefill") \
  EACH("attention extend") EACH("attention decode") EACH("attention variants") EACH("attention_backward") \
  EACH("fused_allgather_and_linear") EACH("fused sums over ranks") EACH("collectives") \
  EACH("context_attention_forward") EACH("context_attention_backward") EACH("fused_alltoall_and_linear") \
  EACH("fused_linear_and_alltoall") EACH("sequence_parallel_rms_norm_backward") EACH("matmul backward")

#define SEQTILE_ON_GPU(group) \
  TEST_CASE("gpu: " group " agrees with the reference", "[kernels][gpu]") { run_on_gpu(group); }
SEQTILE_GROUPS(SEQTILE_ON_GPU)

TEST_CASE("gpu: every group of the tables has a case", "[kernels]") {
#define SEQTILE_NAME(group) group,
  const std::set<std::string> with_case{SEQTILE_GROUPS(SEQTILE_NAME)};
  CHECK(with_case.size() == kernel_table().size() + rank_table().size());
  for (const auto* table : {&kernel_table(), &rank_table()})
    for (const CaseGroup& group : *table) CHECK(with_case.contains(group.name));
}

}  // namespace seqtile::testing
