// tests/kernels/linear_wgrad_test.cpp -- gradients of weights against their reference.
// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>

#include <cstdlib>
#include <vector>

#include "seqtile/engine.h"
#include "seqtile/operations.h"
#include "seqtile/ops/linear.h"
#include "tests/cache/support.h"
#include "tests/support/kernels/kernel_table.h"

namespace seqtile::testing {
namespace {

KernelCase wgrad(int64_t n, int64_t k, bool accumulate = false, const char* gradient = "operand") {
  return {"linear_wgrad",
          {{"n", n}, {"k", k}, {"accumulate", int64_t{accumulate}}, {"gradient", std::string(gradient)}}};
}

}  // namespace

TEST_CASE("linear_wgrad: interpreted, every variant", "[kernels]") {
  for (const DType dtype : kKernelDTypes) {
    check_interpreted(wgrad(21, 37), dtype, {1, 5, 18});
    check_interpreted(wgrad(5, 9, true, "f32"), dtype, {7});
  }
}

TEST_CASE("linear_wgrad: every dtype and length, added to what there is, also in f32", "[kernels][sweep]") {
  check_on_cpus("linear_wgrad");
}

TEST_CASE("linear_wgrad: matrix registers, which its kernels do not use, are not in its space", "[kernels]") {
  const auto& op = library_op("linear_wgrad");
  const auto workload = normalized(wgrad(1024, 1024), DType::bf16);
  const Target target = cpu_target("amx");
  CHECK(op.default_config(workload, 512, target).get_string("form") == "outer");
  for (const autotune::Config& config : op.config_space(workload, 512, target).enumerate())
    REQUIRE(config.get_string("form") == "outer");
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
           .before = make_tensor(dw.data(), DType::f32, {40, 24}),
           .dw = make_tensor(dw.data(), DType::f32, {40, 24})});
  for (const float value : dw) REQUIRE(value == 1 + 0.125f * (3 + 70 + 1));
}

}  // namespace seqtile::testing
