// tests/kernels/simulated_test.cpp -- every kernel compiled for GPUs, against the reference: simulated with all checks,
// and on the GPU where there is one.
// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>

#include <set>

#include "kernels/registry.h"
#include "tests/support/kernel_table.h"

namespace seqtile::testing {
namespace {

/// All lengths of a group's first case, a default run's of the others: checking a GPU takes two minutes.
void check_on_gpu(Device& device, const std::vector<CaseGroup>& table) {
  for (const CaseGroup& group : table)
    for (const TableCase& c : group.cases)
      for (const DType dtype : kKernelDTypes)
        check_on(device, c.kernel, dtype, &c == &group.cases.front() ? c.lengths : c.few);
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

TEST_CASE("gpu: every kernel agrees with the reference", "[kernels][gpu]") {
  if (const auto device = open_gpu()) check_on_gpu(*device, kernel_table());
}

TEST_CASE("gpu: every kernel over ranks agrees with the reference where peers' data is preset", "[seqpar][gpu]") {
  if (const auto device = open_gpu()) check_on_gpu(*device, rank_table());
}

}  // namespace seqtile::testing
