// tests/kernels/simulated_test.cpp -- every kernel compiled for GPUs, against the reference: simulated with all checks,
// and on the GPU if there is one.
// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>

#include <set>

#include "seqtile/operations.h"
#include "tests/support/kernels/kernel_table.h"
#include "tests/support/kernels/table_tests.h"

namespace seqtile::testing {
namespace {

/// Row kernels: interpreted at a narrow shape, compiled at the models' awkward ones.
void check_rows(const CaseGroup& group) {
  for (const DType dtype : kKernelDTypes) check_interpreted(*group.narrow, dtype, {1, 3, 17});
  check_on_cpus(group.name);
}

/// Checks all lengths of the group's first case, and the few lengths of a default run for the other cases.
void run_on_gpu(const CaseGroup& group) {
  const auto device = open_gpu();
  if (!device) return;
  for (const TableCase& c : group.cases)
    for (const DType dtype : kKernelDTypes)
      check_on(*device, c.kernel, dtype, &c == &group.cases.front() ? c.lengths : c.few);
}

// Each group is a case of its own, so that they run at the same time.
[[maybe_unused]] const bool kAreAdded = [] {
  for (const CaseGroup& group : kernel_table()) {
    if (group.narrow) add_test(group.name + ": every dtype and length", "[kernels][sweep]", check_rows, group);
    if (std::ranges::any_of(group.cases, [](const TableCase& c) { return !c.few.empty(); }))
      add_test(
          "simulated: " + group.name, "[kernels][sim][sweep]", [](const CaseGroup& g) { simulate_few(g.name); }, group);
  }
  for (const auto* table : {&kernel_table(), &rank_table()})
    for (const CaseGroup& group : *table)
      add_test("gpu: " + group.name + " agrees with the reference", "[kernels][gpu]", run_on_gpu, group);
  return true;
}();

}  // namespace

TEST_CASE("simulated: the tables have cases of every operation of the library", "[kernels]") {
  std::set<std::string> in_tables, simulated;
  for (const auto* table : {&kernel_table(), &rank_table()})
    for (const CaseGroup& group : *table)
      for (const TableCase& c : group.cases) {
        INFO(group.name);
        CHECK(!c.lengths.empty());
        in_tables.insert(c.kernel.operation);
        if (!c.few.empty()) simulated.insert(c.kernel.operation);
      }
  const autotune::Registry library = kernels::make_registry();
  for (const auto& op : library.ops()) {
    INFO(op->name << ": no case in kernel_table(), or none with lengths that are simulated");
    CHECK(in_tables.erase(op->name) == 1);
    CHECK(simulated.contains(op->name));
  }
  for (const std::string& name : in_tables) FAIL_CHECK(name << " has cases, but is not in the registry");
}

// Without a narrow shape no default test runs a row kernel on CPUs.
TEST_CASE("simulated: every row kernel has a narrow shape", "[kernels]") {
  for (const CaseGroup& group : kernel_table()) {
    const KernelCase& kernel = group.cases.front().kernel;
    const auto& op = library_op(kernel.operation);
    const auto config = op.default_config(normalized(kernel, DType::f32), 64, cpu_target("avx512"));
    INFO(group.name);
    if (config.values().size() == 1 && config.contains("rows")) CHECK(group.narrow.has_value());
  }
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

}  // namespace seqtile::testing
