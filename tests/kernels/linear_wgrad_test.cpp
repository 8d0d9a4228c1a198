// tests/kernels/linear_wgrad_test.cpp -- gradients of weights against their reference.
// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>

#include <cstdlib>
#include <vector>

#include "autotune/engine.h"
#include "kernels/linear_wgrad.h"
#include "kernels/registry.h"
#include "tests/cache/support.h"
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

TEST_CASE("linear_wgrad: main gradients are added up in place, micro-batch by micro-batch", "[kernels]") {
  const test::TempFolder folder;
  setenv("SEQTILE_CONFIG_DIR", folder.file("config").c_str(), 1);
  const autotune::Registry registry = kernels::make_registry();
  const auto engine = Engine::open({.threads = 2,
                                    .cache = folder.file("tuning.db"),
                                    .artifacts = folder.file("artifacts.db"),
                                    .policy = MissPolicy::fallback},
                                   registry);
  const auto wgrad = engine->prepare(kernels::LinearWgrad{.n = 40, .k = 24, .accumulate = true});
  std::vector<float> dy(70 * 40, 0.5f), x(70 * 24, 0.25f), dw(40 * 24, 1.0f);
  for (const int64_t length : {3, 70, 1})
    wgrad({.dy = make_tensor(dy.data(), DType::f32, {length, 40}),
           .x = make_tensor(x.data(), DType::f32, {length, 24}),
           .dw = make_tensor(dw.data(), DType::f32, {40, 24})});
  for (const float value : dw) REQUIRE(value == 1 + 0.125f * (3 + 70 + 1));
}

}  // namespace seqtile::testing
