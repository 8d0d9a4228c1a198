// tests/kernels/linear_wgrad_test.cpp -- gradients of weights against their reference.
// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>

#include "tests/support/kernel_cases.h"

namespace seqtile::testing {
namespace {

const DType kDTypes[] = {DType::f32, DType::bf16, DType::f16};

KernelCase wgrad(int64_t n, int64_t k, bool accumulate = false, const char* gradient = "operand") {
  return {"linear_wgrad",
          {{"n", n}, {"k", k}, {"accumulate", int64_t{accumulate}}, {"gradient", std::string(gradient)}}};
}

}  // namespace

TEST_CASE("linear_wgrad: interpreted, every variant", "[kernels]") {
  for (const DType dtype : kDTypes) {
    check_interpreted(wgrad(21, 37), dtype, {1, 5, 18});
    check_interpreted(wgrad(5, 9, true, "f32"), dtype, {7});
  }
}

TEST_CASE("linear_wgrad: every dtype and length at the models' awkward dimensions", "[kernels][sweep]") {
  for (const DType dtype : kDTypes) {
    check_compiled(wgrad(576, 192), dtype);
    check_compiled(wgrad(77, 301), dtype, {1, 7, 64, 257});
  }
}

TEST_CASE("linear_wgrad: added to what there is, in the operands' format or in f32", "[kernels]") {
  for (const DType dtype : kDTypes) {
    check_compiled(wgrad(100, 96, true), dtype, {1, 17, 130});
    check_compiled(wgrad(100, 97, true, "f32"), dtype, {1, 33, 1000});
    check_compiled(wgrad(33, 64, false, "f32"), dtype, {3, 65});
  }
}

TEST_CASE("linear_wgrad: on simulated GPUs", "[kernels][sim]") {
  for (const DType dtype : kDTypes) {
    check_simulated(wgrad(72, 96), dtype, {1, 17, 130});
    check_simulated(wgrad(37, 51, true, "f32"), dtype, {1, 65});
    check_simulated(wgrad(256, 136, true), dtype, {33, 200});
  }
}

}  // namespace seqtile::testing
