// tests/jit/codegen/nvptx/synchronisation_test.cpp -- programs that wait for each other, without and with seeded
// faults.
// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>

#include "seqtile/builder.h"
#include "tests/support/ptx/simulated_kernel.h"
#include "tests/support/ptx/text_faults.h"

namespace seqtile::testing {
namespace {

/// Program p takes row p - 1 of x when its flag is up, adds one, stores it as row p and raises the next flag. `kind` is
/// the way of raising. The second tensor has the flags.
std::unique_ptr<ir::Function> relay(const char* kind) {
  KernelBuilder b(std::string("relay_") + kind);
  b.schedule({{"num_warps", int64_t{2}}});
  Var x = b.view("x", DType::f32, {kDynamic, 512}), flags = b.view("flags", DType::i32, {kDynamic});
  Var me = b.program_id(0);
  b.if_then(me > 0, [&] {
    b.wait_ge(flags, {me - 1}, 1);
    b.store(x, {me, 0}, b.load(x, {me - 1, 0}, {1, 512}) + 1.0);
    return std::vector<Var>{};
  });
  b.signal(kind, flags, {me}, 1);
  return b.finish();
}

/// Runs forty random schedules on each target: nothing may be reported, and memory must be as interpreted.
void check_schedules(const ir::Function& function, Grid grid, const std::vector<Param>& params) {
  const Operands want(params);
  interpret_on(function, grid, want, {});
  for (const char* target : {"sm_80", "sm_90a"}) {
    SimulatedKernel kernel(function, target);
    for (uint32_t seed = 0; seed <= 40; ++seed) {
      INFO(function.name() << " for " << target << " seed " << seed);
      const Operands got(params);
      REQUIRE(kernel.run(grid, got, {}, seed) == "");
      REQUIRE(first_difference(function, params, want, got, 0) == "");
    }
  }
}

}  // namespace

TEST_CASE("flags between programs: faults are reported for what they are", "[jit][nvptx][sim][fault]") {
  const std::vector<Param> params = {{DType::f32, {4, 512}}, {DType::i32, {4}, 0, 0}};
  for (const char* kind : {"set", "add"}) {
    const auto function = relay(kind);
    check_schedules(*function, {4, 1, 1}, params);
    SimulatedKernel kernel(*function);
    const std::string right = kernel.text();
    const std::string up = std::string(kind) == "set" ? "st" : "red", release = up + R"(\.release\.gpu)";
    const std::string before = R"(bar\.sync\s+0;((?:(?!bar\.sync)[\s\S])*?)" + release + ")";
    const std::string relaxed = up + ".relaxed.gpu", narrow = up + ".release.cta", whole = release + "[^;]*;";
    const char* const wait = R"(ld\.acquire\.gpu)";
    check_faults(
        right,
        {{"the flag does not release", release.c_str(), relaxed.c_str(), 0, "race", "tensor 0 + "},
         {"the flag is for the block only", release.c_str(), narrow.c_str(), 0, "scope too narrow", "tensor 1 + "},
         {"the wait does not acquire", wait, "ld.relaxed.gpu", 0, "race", "tensor 0 + "},
         {"the wait is for the block only", wait, "ld.acquire.cta", 0, "scope too narrow", "tensor 1 + "},
         {"the flag is raised before all have stored", before.c_str(), "$1", -1, "race", "tensor 0 + "},
         {"threads do not wait for the one that does", R"((bra W\d+;[\s\S]*?)bar\.sync\s+0;)", "$1", 0, "race",
          "tensor 0 + "},
         {"nobody raises the flag", whole.c_str(), "", 0, "deadlock", "ld.acquire"}},
        [&](const std::string& text, uint32_t seed) {
          kernel.set_text(text);
          const std::string found = kernel.run({4, 1, 1}, Operands(params), {}, seed);
          return found.empty() ? found : found.substr(found.find(": ") + 2);  // drops the kernel's name
        });
  }
}

}  // namespace seqtile::testing
