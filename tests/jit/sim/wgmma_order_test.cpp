// tests/jit/sim/wgmma_order_test.cpp -- data that the four warps of a group must know when they issue a wgmma.
// SPDX-License-Identifier: Apache-2.0
#include "tests/jit/sim/sim_test.h"

namespace seqtile::sim {
namespace {

constexpr uint64_t descriptor(uint64_t address) { return address >> 4 | (1024u >> 4) << 16 | uint64_t{128 >> 4} << 32; }

/// Four warps stage ones for m64n64k16: a thread has half a row of B, then half a row of A. Row r of A belongs to warp
/// r / 16.
std::string staged_text() {
  std::string sums;
  for (int i = 0; i < 32; ++i) sums += (i ? ", %f" : "%f") + std::to_string(i);
  return kernel_text(R"(
mov.u32 %r1, smem;
shr.u32 %r2, %r0, 1;
and.b32 %r3, %r0, 1;
shl.b32 %r4, %r2, 4;
mad.lo.u32 %r4, %r3, 1024, %r4;
add.u32 %r5, %r1, %r4;
mov.b32 %r6, 0x3f803f80;
st.shared.v4.u32 [%r5+2048], {%r6, %r6, %r6, %r6};
bar.sync 0;
st.shared.v4.u32 [%r5], {%r6, %r6, %r6, %r6};
fence.proxy.async.shared::cta;
bar.sync 1, 128;
wgmma.fence.sync.aligned;
setp.ne.b32 %p1, 1, 1;
wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {)" +
                         sums + "}, " + std::to_string(descriptor(1024)) + ", " +
                         std::to_string(descriptor(1024 + 2048)) + R"(, %p1, 1, 1, 0, 0;
wgmma.commit_group.sync.aligned;
wgmma.wait_group.sync.aligned 0;
mul.wide.u32 %rd4, %r0, 4;
add.s64 %rd5, %rd0, %rd4;
st.global.f32 [%rd5], %f31;
)",
                     1, ".extern .shared .align 1024 .b8 smem[];\n");
}

LaunchResult staged(const std::string& text, uint32_t seed) {
  std::vector<float> out(128, -1);
  Bench bench;
  bench.add(out);
  bench.shape.threads = 128, bench.shape.shared_bytes = 4096;
  bench.options.seed = seed;
  const LaunchResult result = bench.run(text);
  if (result.ok()) CHECK(out == std::vector<float>(128, 16));
  return result;
}

}  // namespace

TEST_CASE("ptx machine: every warp of a group must know all of a wgmma's B, and its own rows of A", "[jit][sim]") {
  const std::string text = staged_text(), behind_a = "bar.sync 1, 128;\n", behind_b = "bar.sync 0;\n";
  // Each thread stages its part of A for another warp.
  const std::string crossed =
      replaced(text, "st.shared.v4.u32 [%r5],", "xor.b32 %r5, %r5, 256;\nst.shared.v4.u32 [%r5],");
  for (uint32_t seed = 0; seed < 4; ++seed) {
    INFO("seed " << seed);
    CHECK(messages(staged(text, seed)) == "");
    CHECK(messages(staged(crossed, seed)) == "");
    CHECK(messages(staged(replaced(text, behind_a, ""), seed)) == "");
    const LaunchResult a = staged(replaced(crossed, behind_a, ""), seed);
    CHECK_THAT(messages(a), Catch::StartsWith("race: k, PTX line") && Catch::Contains("reads shared + "));
    const LaunchResult b = staged(replaced(replaced(text, behind_b, ""), behind_a, ""), seed);
    CHECK_THAT(messages(b), Catch::StartsWith("race: k, PTX line") && Catch::Contains("reads shared + 2"));
  }
}

}  // namespace seqtile::sim
