// tests/kernels/grouped_linear_test.cpp -- experts with no rows, with all rows, and rows of no expert.
// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>

#include <cmath>
#include <numeric>

#include "autotune/call/launcher.h"
#include "jit/ir/row_alignment.h"
#include "seqtile/kernel.h"
#include "seqtile/ops/linear.h"
#include "tests/support/kernels/kernel_table.h"

namespace seqtile::testing {
namespace {

struct Routing {
  const char* name;
  std::vector<int64_t> offsets;
  int64_t length;
};

std::vector<Routing> routings() {
  std::vector<int64_t> alternating{0};
  for (int64_t e = 0; e < 64; ++e) alternating.push_back(alternating.back() + (e % 3 == 0 ? e % 7 : 0));
  return {{"empty experts first, between and last", {0, 0, 0, 17, 17, 50, 50}, 50},
          {"one expert has everything", {0, 0, 130, 130}, 130},
          {"the last one has everything", {0, 0, 0, 0, 0, 65}, 65},
          {"a row for each", {0, 1, 2, 3, 4, 5, 6, 7, 8}, 8},
          {"blocks begin at every row", {0, 31, 33, 64, 97, 98, 131}, 131},
          {"rows of no expert", {5, 5, 40, 90}, 101},
          {"64 experts, most of them empty", alternating, alternating.back()}};
}

KernelCase kernel_of(const Routing& routing, bool is_gated) {
  const auto experts = static_cast<int64_t>(routing.offsets.size()) - 1;
  return {
      "grouped_linear",
      {{"experts", experts}, {"n", 72}, {"k", 64}, {"gated", is_gated}, {"activation", is_gated ? "silu" : "none"}}};
}

void write_offsets(const GuardedCall& call, const Routing& routing) {
  const Tensor& offsets = call.tensor("offsets");
  for (size_t i = 0; i < routing.offsets.size(); ++i)
    write_element(offsets, static_cast<int64_t>(i), static_cast<double>(routing.offsets[i]));
}

std::vector<int64_t> rows_of_experts(const Routing& routing) {
  std::vector<int64_t> rows(static_cast<size_t>(routing.offsets.back() - routing.offsets.front()));
  std::iota(rows.begin(), rows.end(), routing.offsets.front());
  return rows;
}

void check_on_target(const Routing& routing, DType dtype, bool is_gated, const Target& target) {
  const auto device = make_cpu_device(2);
  const auto& op = library_op("grouped_linear");
  const auto workload = normalized(kernel_of(routing, is_gated), dtype);
  GuardedCall call(op, workload, {routing.length}, 7);
  write_offsets(call, routing);
  const auto rows = rows_of_experts(routing);
  const auto want = call.want(rows);
  for (const auto& config : diverse_configs(op, workload, routing.length, target, 5)) {
    INFO(routing.name << " " << workload.json() << " " << target.name << " " << config.json());
    KernelRunner runner(op, workload, config, target, Backend::compiled, *device);
    call.poison_outputs();
    const Tensor& y = call.tensor("y");
    runner.run(call.problem());
    REQUIRE(call.check(rows, want) == "");
    for (int64_t row = 0; row < routing.length; ++row)
      if (row < routing.offsets.front() || row >= routing.offsets.back())
        REQUIRE(std::isnan(read_element(y, row * y.strides[0])));
  }
}

}  // namespace

TEST_CASE("grouped_linear: empty experts, one with everything, rows of none", "[kernels]") {
  const std::vector<Target> targets = executable_targets();
  size_t first = 0;  // targets take turns; the slow test has all of them
  for (const Routing& routing : routings())
    for (const bool is_gated : {false, true}) {
      size_t turn = first++;
      for (const DType dtype : kKernelDTypes)
        check_on_target(routing, dtype, is_gated, targets[turn++ % targets.size()]);
    }
}

TEST_CASE("grouped_linear: empty experts, one with everything, rows of none, every target", "[kernels][slow]") {
  for (const Target& target : executable_targets())
    for (const Routing& routing : routings())
      for (const bool is_gated : {false, true})
        for (const DType dtype : kKernelDTypes) check_on_target(routing, dtype, is_gated, target);
}

TEST_CASE("grouped_linear: empty experts and one with everything on simulated GPUs", "[kernels][sim]") {
  on_simulated_gpus([](Device& device) {
    for (const Routing& routing : routings()) {
      if (routing.offsets.front() != 0) continue;  // the check wants every row
      const auto workload = normalized(kernel_of(routing, routing.length == 50), DType::bf16, 1);
      GuardedCall call(library_op("grouped_linear"), workload, {routing.length}, 7, kGpuAlignment);
      write_offsets(call, routing);
      INFO(routing.name);
      check_call_on(device, call, workload, routing.length);
    }
  });
}

TEST_CASE("grouped_linear: interpreted", "[kernels]") {
  const KernelCase narrow{"grouped_linear",
                          {{"experts", 5}, {"n", 24}, {"k", 20}, {"gated", 1}, {"activation", "gelu"}}};
  for (const DType dtype : kKernelDTypes) check_interpreted(narrow, dtype, {1, 3, 29});
}

TEST_CASE("grouped_linear: every dtype and length", "[kernels][sweep]") { check_on_cpus("grouped_linear"); }

// A slice of the grid may have blocks of no expert alone: its trial would fail, or show a wrong time.
TEST_CASE("grouped_linear: trials run the whole grid", "[kernels]") {
  const Grid grid{1000, 8, 1};
  for (const char* operation : {"linear", "grouped_linear"}) {
    const autotune::LoadedCandidate candidate{.has_uneven_programs = library_op(operation).has_uneven_programs};
    CHECK(autotune::sample_for(candidate, grid, 0.01, 2).empty() == (std::string(operation) == "grouped_linear"));
  }
}

TEST_CASE("grouped_linear: the rows that the tuner gives to experts add up and are uneven", "[kernels]") {
  for (const int64_t experts : {1, 2, 6, 64, 4096})
    for (const int64_t length : {1, 7, 256, 100000}) {
      const auto rows = kernels::GroupedLinear{.experts = experts, .n = 1, .k = 1}.typical_rows(length);
      INFO(experts << " experts, " << length << " rows");
      CHECK(static_cast<int64_t>(rows.size()) == experts);
      CHECK(std::accumulate(rows.begin(), rows.end(), int64_t{0}) == length);
      CHECK(std::ranges::min(rows) >= 0);
    }
  const auto rows = kernels::GroupedLinear{.experts = 64, .n = 1, .k = 1}.typical_rows(64000);
  CHECK(std::ranges::max(rows) > 4000);
  CHECK(std::ranges::min(rows) < 600);
}

}  // namespace seqtile::testing
