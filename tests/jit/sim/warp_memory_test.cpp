// tests/jit/sim/warp_memory_test.cpp -- shared memory between lanes and warps: atomics, missing barriers.
// SPDX-License-Identifier: Apache-2.0
#include "tests/jit/sim/sim_test.h"

namespace seqtile::sim {
namespace {

/// Four warps count in shared memory; all threads read the sum after a barrier.
const std::string kCount = kernel_text(R"(
mov.u32 %r1, buffer;
setp.ne.u32 %p1, %r0, 0;
@!%p1 st.shared.u32 [%r1], 0;
bar.sync 0;
atom.shared.add.u32 %r2, [%r1], 1;
bar.sync 0;
ld.shared.u32 %r3, [%r1];
mul.wide.u32 %rd4, %r0, 4;
add.s64 %rd5, %rd0, %rd4;
st.global.u32 [%rd5], %r3;
)",
                                       1, ".shared .align 8 .b8 buffer[8];\n");

LaunchResult count(const std::string& text, uint32_t seed = 0) {
  std::vector<uint32_t> out(128, 0);
  Bench bench;
  bench.add(out);
  bench.shape.threads = 128;
  bench.options.seed = seed;
  const LaunchResult result = bench.run(text);
  if (result.ok()) CHECK(out == std::vector<uint32_t>(128, 128));
  return result;
}

TEST_CASE("ptx machine: atomics on shared memory do not race with each other, but with plain accesses", "[jit][sim]") {
  for (uint32_t seed = 0; seed < 6; ++seed) {
    const LaunchResult result = count(kCount, seed);
    INFO(messages(result));
    REQUIRE(result.ok());
  }
  CHECK(has(count(replaced(kCount, "bar.sync 0;\natom", "red.shared.max.u32 [%r1+4], %r0;\nbar.sync 0;\natom")),
            ReportKind::uninitialised_memory));  // nobody has set this word
  bool is_named = false;
  for (uint32_t seed = 1; seed < 80; seed += 4) {  // short turns
    const LaunchResult early = count(replaced(kCount, "bar.sync 0;\nld.shared", "ld.shared"), seed);
    CHECK(has(early, ReportKind::race));
    is_named |= messages(early).find("accesses atomically at PTX line") != std::string::npos;
    CHECK(has(count(replaced(kCount, "bar.sync 0;\natom", "atom"), seed), ReportKind::race));
  }
  CHECK(is_named);
}

/// Lanes hand words to their neighbours through shared memory.
const std::string kNeighbours = kernel_text(R"(
mov.u32 %r1, buffer;
shl.b32 %r2, %r0, 2;
add.u32 %r3, %r1, %r2;
st.shared.u32 [%r3], %r0;
bar.warp.sync -1;
xor.b32 %r4, %r3, 4;
ld.shared.u32 %r5, [%r4];
cvt.u64.u32 %rd5, %r2;
add.s64 %rd6, %rd0, %rd5;
st.global.u32 [%rd6], %r5;
)",
                                            1, ".shared .align 8 .b8 buffer[128];\n");

LaunchResult neighbours(const std::string& text, bool checks_lanes = true) {
  std::vector<uint32_t> out(32, 0);
  Bench bench;
  bench.add(out);
  bench.options.checks.lanes = checks_lanes;
  return bench.run(text);
}

TEST_CASE("ptx machine: lanes of a warp that meet in memory need bar.warp.sync", "[jit][sim]") {
  CHECK(neighbours(kNeighbours).ok());
  const std::string missing = replaced(kNeighbours, "bar.warp.sync -1;\n", "");
  const LaunchResult result = neighbours(missing);
  INFO(messages(result));
  REQUIRE(has(result, ReportKind::race));
  CHECK(result.reports[0].line == line_of(missing, "ld.shared"));
  CHECK_THAT(result.reports[0].message, Catch::Contains("lane 1 of the same warp wrote at PTX line"));
  CHECK(neighbours(missing, false).ok());
  // A lane stores over a word that another lane has read.
  const std::string overwritten =
      replaced(kNeighbours, "ld.shared.u32 %r5, [%r4];", "ld.shared.u32 %r5, [%r4];\nst.shared.u32 [%r3], 7;");
  CHECK(has(neighbours(overwritten), ReportKind::race));
  CHECK(neighbours(replaced(overwritten, "st.shared.u32 [%r3], 7", "bar.warp.sync -1;\nst.shared.u32 [%r3], 7")).ok());
}

TEST_CASE("ptx machine: lanes of one store may write one element only with one value", "[jit][sim]") {
  const std::string shared = replaced(kNeighbours, "ld.shared.u32 %r5, [%r4];",
                                      "ld.shared.u32 %r5, [%r4];\nbar.warp.sync -1;\nst.shared.u32 [%r1], 5;");
  CHECK(neighbours(shared).ok());
  const LaunchResult result = neighbours(replaced(shared, "st.shared.u32 [%r1], 5", "st.shared.u32 [%r1], %r0"));
  INFO(messages(result));
  REQUIRE(has(result, ReportKind::race));
  CHECK_THAT(messages(result), Catch::Contains("lanes of one instruction write different values to shared + 0"));
  const LaunchResult global =
      neighbours(replaced(kNeighbours, "st.global.u32 [%rd6], %r5", "st.global.u32 [%rd0], %r5"));
  REQUIRE(has(global, ReportKind::race));
  CHECK_THAT(messages(global), Catch::Contains("different values to b0 + 0"));
}

TEST_CASE("ptx machine: bytes of one word that different warps write do not race", "[jit][sim]") {
  std::vector<uint16_t> out(128, 0);
  Bench bench;
  bench.add(out);
  bench.shape.threads = 128;
  // Thread t has half-word t / 32 + 4 * (t % 32): each word belongs to two warps.
  const LaunchResult result = bench.run(kernel_text(R"(
mov.u32 %r1, buffer;
shr.u32 %r2, %r0, 5;
and.b32 %r3, %r0, 31;
mad.lo.u32 %r4, %r3, 4, %r2;
mad.lo.u32 %r5, %r4, 2, %r1;
cvt.u16.u32 %rs1, %r4;
st.shared.u16 [%r5], %rs1;
ld.shared.u16 %rs2, [%r5];
mul.wide.u32 %rd4, %r4, 2;
add.s64 %rd5, %rd0, %rd4;
st.global.u16 [%rd5], %rs2;
)",
                                                    1, ".shared .align 8 .b8 buffer[256];\n"));
  INFO(messages(result));
  REQUIRE(result.ok());
  for (uint16_t t = 0; t < 128; ++t) REQUIRE(out[t] == t);
}

}  // namespace
}  // namespace seqtile::sim
