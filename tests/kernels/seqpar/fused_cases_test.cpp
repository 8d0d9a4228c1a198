// tests/kernels/seqpar/fused_cases_test.cpp -- fused operations as the tuner runs them: one process, peers' data
// preset. SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>

#include <string>
#include <vector>

#include "tests/support/kernel_cases.h"

using namespace seqtile;
using namespace seqtile::testing;

namespace {

constexpr DType kDTypes[] = {DType::f32, DType::bf16, DType::f16};

}  // namespace

TEST_CASE("fused_allgather_and_linear: preset by one process, every dtype and length", "[seqpar]") {
  const KernelCase test_case{
      "fused_allgather_and_linear",
      {{"n", int64_t{40}}, {"n2", int64_t{24}}, {"k", int64_t{48}}, {"bias", int64_t{1}}, {"world_size", int64_t{3}}}};
  const auto device = make_cpu_device(2);
  for (const DType dtype : kDTypes) check_on(*device, test_case, dtype);
}

TEST_CASE("fused operations: preset by one process on simulated GPUs", "[seqpar][sim]") {
  const std::vector<int64_t> lengths = {1, 2, 3, 17, 64, 65, 127};
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const char* name : {"fused_allgather_and_linear", "fused_linear_and_reducescatter"})
      check_simulated(
          {name, {{"n", int64_t{40}}, {"k", int64_t{48}}, {"bias", int64_t{1}}, {"world_size", int64_t{3}}}}, dtype,
          lengths);
}

// Two workers: what sums up runs beside what it waits for.
TEST_CASE("fused_linear_and_reducescatter: preset by one process, every dtype, transport and length", "[seqpar]") {
  const auto device = make_cpu_device(2);
  for (const char* transport : {"f32", "bf16"})
    for (const DType dtype : kDTypes)
      check_on(*device,
               {"fused_linear_and_reducescatter",
                {{"n", int64_t{40}},
                 {"k", int64_t{48}},
                 {"residual", int64_t{1}},
                 {"world_size", int64_t{3}},
                 {"transport", std::string(transport)}}},
               dtype);
}
