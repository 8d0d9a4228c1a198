// tests/jit/sim/forms_test.cpp -- rarely used forms: predicates, carries, votes, registers.
// SPDX-License-Identifier: Apache-2.0
#include "tests/jit/sim/sim_test.h"

namespace seqtile::sim {
namespace {

/// Runs a body that leaves a result per thread in %r1.
std::vector<uint32_t> words(const std::string& body, int threads = 32) {
  std::vector<uint32_t> out(static_cast<size_t>(threads), 0);
  Bench bench;
  bench.add(out);
  bench.shape.threads = threads;
  const LaunchResult result = bench.run(
      kernel_text(body + "\nmul.wide.u32 %rd20, %r0, 4;\nadd.s64 %rd21, %rd0, %rd20;\nst.global.u32 [%rd21], %r1;\n"));
  INFO(messages(result));
  REQUIRE(result.ok());
  return out;
}

LaunchResult faulty(const std::string& body, int threads = 32, int registers = 0) {
  std::vector<uint32_t> out(64, 0);
  Bench bench;
  bench.add(out);
  bench.shape.threads = threads, bench.shape.shared_bytes = 1024, bench.shape.registers = registers;
  return bench.run(kernel_text(body, 1, ".extern .shared .align 1024 .b8 smem[];\n"));
}

TEST_CASE("ptx machine: setp combines with a predicate and gives the opposite too", "[jit][sim]") {
  const auto out = words(R"(
and.b32 %r2, %r0, 1;
setp.eq.u32 %p1, %r2, 0;
setp.lt.and.u32 %p2|%p3, %r0, 10, %p1;
setp.gt.or.s32 %p4, %r0, 20, !%p1;
setp.ge.xor.u32 %p1, %r0, 5, %p1;
setp.lt.ftz.f32 %p5|%p6, 0f3F800000, 0f40000000;
selp.u32 %r1, 1, 0, %p2;
selp.u32 %r3, 2, 0, %p3;
selp.u32 %r4, 4, 0, %p4;
selp.u32 %r5, 8, 0, %p1;
selp.u32 %r6, 16, 0, %p5;
selp.u32 %r7, 32, 0, %p6;
or.b32 %r1, %r1, %r3;
or.b32 %r1, %r1, %r4;
or.b32 %r1, %r1, %r5;
or.b32 %r1, %r1, %r6;
or.b32 %r1, %r1, %r7;
)");
  for (uint32_t t = 0; t < 32; ++t) {
    const bool even = t % 2 == 0;
    const uint32_t want = (t < 10 && even ? 1 : 0) | (t >= 10 && even ? 2 : 0) | (t > 20 || !even ? 4 : 0) |
                          ((t >= 5) != even ? 8 : 0) | 16;
    REQUIRE(out[t] == want);
  }
}

TEST_CASE("ptx machine: carries run through additions, subtractions and products", "[jit][sim]") {
  const auto out = words(R"(
add.cc.u32 %r2, %r0, 0xfffffff0;
addc.u32 %r3, 100, 0;
sub.cc.u32 %r4, %r0, 8;
subc.u32 %r5, 0, 0;
mad.lo.cc.u32 %r6, %r0, 0x10000000, 0x80000000;
madc.hi.u32 %r7, %r0, 0x10000000, 0;
add.cc.u64 %rd4, -1, 1;
addc.cc.u64 %rd5, 0, 0;
cvt.u32.u64 %r8, %rd5;
mad.lo.u32 %r1, %r3, 1000, %r7;
mad.lo.u32 %r1, %r5, 10, %r1;
add.u32 %r1, %r1, %r8;
)");
  for (uint32_t t = 0; t < 32; ++t) {
    const uint32_t sum = 100 + (t >= 16), difference = t < 8 ? ~0u : 0u;
    const auto product = static_cast<uint32_t>((uint64_t{t} * 0x10000000 + 0x80000000u) >> 32);
    REQUIRE(out[t] == sum * 1000 + product + difference * 10 + 1);
  }
}

TEST_CASE("ptx machine: dp4a and saturating sums", "[jit][sim]") {
  const auto out = words(R"(
dp4a.s32.u32 %r1, 0xff01ff01, 0x02020202, %r0;
dp4a.u32.u32 %r2, 0xff01ff01, 0x02020202, 0;
add.sat.s32 %r3, 0x7fffffff, %r0;
sub.sat.s32 %r4, 0x80000000, %r0;
shr.u32 %r3, %r3, 31;
shr.u32 %r4, %r4, 31;
mad.lo.u32 %r1, %r2, 100, %r1;
add.u32 %r1, %r1, %r3;
add.u32 %r1, %r1, %r4;
)");
  for (uint32_t t = 0; t < 32; ++t) REQUIRE(out[t] == t + 100 * 1024 + 1);
}

TEST_CASE("ptx machine: bar.red counts and combines over all warps; match.all compares", "[jit][sim]") {
  const auto out = words(R"(
setp.lt.u32 %p1, %r0, 50;
bar.red.popc.u32 %r2, 0, %p1;
bar.red.and.pred %p2, 1, 128, %p1;
bar.red.or.pred %p3, 2, !%p1;
selp.u32 %r3, 1000, 0, %p2;
selp.u32 %r4, 2000, 0, %p3;
add.u32 %r1, %r2, %r3;
add.u32 %r1, %r1, %r4;
shr.u32 %r5, %r0, 5;
match.all.sync.b32 %r6|%p4, %r5, -1;
match.all.sync.b32 %r7, %r0, -1;
selp.u32 %r8, 4000, 0, %p4;
add.u32 %r1, %r1, %r8;
add.u32 %r1, %r1, %r7;
)",
                         128);
  for (const uint32_t value : out) REQUIRE(value == 50 + 2000 + 4000);
}

TEST_CASE("ptx machine: time passes and waiting ends", "[jit][sim]") {
  const auto out = words(R"(
mov.u64 %rd4, %globaltimer;
mov.u64 %rd5, %clock64;
AGAIN:
nanosleep.u32 100;
mov.u64 %rd6, %globaltimer;
setp.eq.u64 %p1, %rd6, %rd4;
@%p1 bra AGAIN;
activemask.b32 %r1;
griddepcontrol.wait;
griddepcontrol.launch_dependents;
)");
  for (const uint32_t value : out) REQUIRE(value == ~0u);
}

/// Warp group 0 gives registers back, group 1 takes more.
const std::string kRegisters = R"(
setp.ge.u32 %p1, %r0, 128;
@%p1 bra MORE;
setmaxnreg.dec.sync.aligned.u32 40;
bra END;
MORE:
setmaxnreg.inc.sync.aligned.u32 232;
END:)";

TEST_CASE("ptx machine: setmaxnreg deals out what the CTA has, or says that it cannot", "[jit][sim]") {
  const auto run = [](std::string inc, std::string dec, int threads, int registers) {
    std::string text = kRegisters;
    text.replace(text.find("232"), 3, inc).replace(text.find("40;"), 2, dec);
    return faulty(text, threads, registers);
  };
  CHECK(run("232", "40", 256, 136).ok());
  const LaunchResult greedy = run("240", "40", 256, 136);
  INFO(messages(greedy));
  REQUIRE(has(greedy, ReportKind::registers));
  CHECK_THAT(greedy.reports[0].message, Catch::Contains("240 registers per thread are never free"));
  // 384 threads start with 168 registers each: 24 + 2 * 240 is exactly the sum.
  CHECK(run("240", "24", 384, 0).ok());
  CHECK(has(run("248", "24", 384, 0), ReportKind::registers));
  CHECK_THAT(messages(run("100", "40", 256, 136)), Catch::Contains("24 to 256 in steps of 8"));
  CHECK_THAT(messages(run("232", "144", 256, 136)), Catch::Contains("from 136 to 144 registers is no decrease"));
  const LaunchResult part =
      faulty("setp.ge.u32 %p1, %r0, 96;\n@%p1 bra END;\nsetmaxnreg.dec.sync.aligned.u32 40;\nEND:", 128, 136);
  INFO(messages(part));
  REQUIRE(has(part, ReportKind::registers));
  CHECK_THAT(part.reports[0].message,
             Catch::Contains("warp 3: the warp ends with 136 registers per thread, the first") &&
                 Catch::Contains("with 40: setmaxnreg is for all four"));
}

TEST_CASE("ptx machine: what mbarriers forbid is reported", "[jit][sim]") {
  const std::string init =
      "mov.u32 %r1, smem;\nsetp.ne.u32 %p1, %r0, 0;\n@!%p1 mbarrier.init.shared::cta.b64 [%r1], 1;\n"
      "bar.warp.sync -1;\n";
  const auto report = [&](const std::string& body) { return messages(faulty(init + body)); };
  CHECK(report("@!%p1 mbarrier.arrive.shared::cta.b64 _, [%r1];") == "");
  CHECK_THAT(report("@!%p1 mbarrier.init.shared::cta.b64 [%r1], 1;"), Catch::Contains("is an mbarrier already"));
  CHECK(report("@!%p1 mbarrier.inval.shared::cta.b64 [%r1];\n@!%p1 mbarrier.init.shared::cta.b64 [%r1], 1;") == "");
  CHECK_THAT(report("@!%p1 mbarrier.inval.shared::cta.b64 [%r1+8];"), Catch::Contains("not an initialised mbarrier"));
  CHECK_THAT(report("@!%p1 mbarrier.init.shared::cta.b64 [%r1+16], 0;"), Catch::Contains("a count of 0"));
  CHECK_THAT(report("@!%p1 st.shared.u32 [%r1+4], 0;"),
             Catch::StartsWith("mbarrier: ") && Catch::Contains("which only mbarrier instructions may touch"));
  CHECK_THAT(report("mbarrier.arrive.shared::cta.b64 _, [%r1], 2;"), Catch::Contains("more arrivals than the count"));
  CHECK_THAT(report("@!%p1 mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%r1], 1048576;"),
             Catch::Contains("1048576 bytes are expected"));
}

TEST_CASE("ptx machine: bytes may be expected, completed by hand and waited for by state", "[jit][sim]") {
  const auto out = words(R"(
.shared .align 8 .b8 barrier[8];
mov.u32 %r2, barrier;
setp.ne.u32 %p1, %r0, 0;
@!%p1 mbarrier.init.shared::cta.b64 [%r2], 32;
bar.warp.sync -1;
mbarrier.arrive.shared::cta.b64 %rd4, [%r2];
mbarrier.test_wait.shared::cta.b64 %p2, [%r2], %rd4;
@!%p1 mbarrier.arrive.expect_tx.shared::cta.b64 %rd5, [%r2], 16;
mbarrier.test_wait.parity.shared::cta.b64 %p3, [%r2], 1;
@!%p1 mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%r2], 16;
mbarrier.try_wait.parity.acquire.cta.shared::cta.b64 %p4, [%r2], 1, 1000;
selp.u32 %r1, 1, 0, %p2;
selp.u32 %r3, 2, 0, %p3;
selp.u32 %r4, 4, 0, %p4;
or.b32 %r1, %r1, %r3;
or.b32 %r1, %r1, %r4;
)");
  // The first phase is over. The second phase still misses 31 arrivals.
  for (const uint32_t value : out) REQUIRE(value == 1);
}

}  // namespace
}  // namespace seqtile::sim
