// tests/jit/sim/hopper_test.cpp -- whole Hopper kernels on the machine, with all checks and under many schedules.
// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>

#include "seqtile/device.h"
#include "tests/support/ptx/hopper_kernels.h"

namespace seqtile::testing {
namespace {

template <class Kernel>
void check(const Kernel& kernel, uint32_t seeds) {
  const std::string text = kernel.text();
  sim::Options options;
  for (options.seed = 0; options.seed <= seeds; ++options.seed) {
    const HopperResult result = run(kernel, text, options);
    INFO("seed " << options.seed << ", error " << result.error << ": " << result.found());
    REQUIRE(result.found() == "");
  }
}

}  // namespace

TEST_CASE("hopper: a persistent wgmma product with tensor multicast is right under random schedules", "[jit][sim]") {
  check(HopperProduct{}, 8);
  check(HopperProduct{.m = 512, .n = 192, .k = 64, .block_n = 64, .stages = 2, .cluster = 1, .clusters = 3}, 3);
  check(HopperProduct{.m = 512, .n = 256, .k = 256, .block_n = 256, .stages = 3, .cluster = 4, .clusters = 1}, 1);
}

TEST_CASE("hopper: attention with the next product under the softmax is right at awkward lengths", "[jit][sim]") {
  check(HopperAttention{}, 4);
  check(HopperAttention{.q_len = 1, .kv_len = 130, .is_causal = false}, 1);
  check(HopperAttention{.q_len = 129, .kv_len = 65, .heads = 1}, 1);  // the first rows see no key
  check(HopperAttention{.q_len = 70, .kv_len = 333, .heads = 1, .head_dim = 128, .block_n = 112}, 1);
}

TEST_CASE("hopper: clusters on different host threads give the same results", "[jit][sim]") {
  const auto executor = make_executor(2);
  sim::Options options;
  options.executor = executor.get();
  const HopperProduct product{.m = 512, .n = 128, .k = 128, .clusters = 2};
  CHECK(run(product, product.text(), options).found() == "");
  const HopperAttention attention{.q_len = 256, .kv_len = 100};
  CHECK(run(attention, attention.text(), options).found() == "");
}

TEST_CASE("hopper: one arrival per warp group is enough only where the option says so", "[jit][sim]") {
  const HopperProduct product{.k = 512};  // longer than the ring
  std::string text = product.text();
  const auto replace = [&](const std::string& from, const std::string& to) {
    for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size()))
      text.replace(at, from.size(), to);
  };
  replace("], 16;", "], 4;");  // the empty barriers' count: two groups of two CTAs
  replace("setp.lt.u32 %releases, %lane, 2;", "and.b32 %x, %t, 127;\nsetp.lt.u32 %releases, %x, 2;");
  sim::Options options;
  bool is_seen = false;
  for (options.seed = 0; options.seed < 4; ++options.seed) {
    const HopperResult strict = run(product, text, options);
    is_seen |= strict.found().find("race") == 0 && strict.found().find("wgmma") != std::string::npos;
  }
  CHECK(is_seen);
  options.checks.release_per_warp = false;
  CHECK(run(product, text, options).found() == "");
}

}  // namespace seqtile::testing
