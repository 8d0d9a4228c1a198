// tests/jit/sim/execution_test.cpp -- divergence, warp operations, barriers, atomics and address spaces.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "seqtile/device.h"
#include "seqtile/error.h"
#include "tests/jit/sim/sim_test.h"

namespace seqtile::sim {
namespace {

const std::string kOwnWord = "mul.wide.u32 %rd20, %r0, 4;\nadd.s64 %rd21, %rd0, %rd20;\n";
const std::string kStoreR1 = kOwnWord + "st.global.u32 [%rd21], %r1;\n";

std::vector<uint32_t> run_words(const std::string& body, int threads = 32, uint32_t seed = 0,
                                const std::string& module_text = "") {
  std::vector<uint32_t> out(static_cast<size_t>(threads), 0xdead);
  Bench bench;
  bench.add(out);
  bench.shape.threads = threads;
  bench.options.seed = seed;
  const LaunchResult result = bench.run(kernel_text(body, 1, module_text));
  INFO(messages(result));
  REQUIRE(result.ok());
  return out;
}

TEST_CASE("ptx machine: lanes with one member mask act together, whatever others do there", "[jit][sim]") {
  // Both halves of the warp are at the same instructions, each with its own mask.
  const std::string halves = "setp.lt.u32 %p1, %r0, 16;\nselp.b32 %r9, 0xffff, 0xffff0000, %p1;\n";
  const auto words = [&](const std::string& instruction) { return run_words(halves + instruction + kStoreR1); };
  const std::vector<uint32_t> sums = words("redux.sync.add.u32 %r1, %r0, %r9;\n"),
                              votes = words("setp.ne.u32 %p2, %r0, 3;\nvote.sync.ballot.b32 %r1, %p2, %r9;\n"),
                              found = words("and.b32 %r8, %r0, 1;\nmatch.any.sync.b32 %r1, %r8, %r9;\n"),
                              mates = words("shfl.sync.bfly.b32 %r1, %r0, 1, 31, %r9;\n"),
                              elected = words("elect.sync %r1|%p2, %r9;\n");
  for (uint32_t t = 0; t < 32; ++t) {
    CHECK(sums[t] == (t < 16 ? 120u : 376u));
    CHECK(votes[t] == (t < 16 ? 0xfff7u : 0xffff0000u));
    CHECK(found[t] == (0x55555555u << t % 2 & (t < 16 ? 0xffffu : 0xffff0000u)));
    CHECK(mates[t] == (t ^ 1));
    CHECK(elected[t] == (t < 16 ? 0u : 16u));
  }
}

TEST_CASE("ptx machine: a lane outside of a member mask is a divergence", "[jit][sim]") {
  const auto report = [](const std::string& instruction) {
    std::vector<uint32_t> out(32);
    Bench bench;
    bench.add(out);
    const LaunchResult result = bench.run(kernel_text(
        "setp.ne.u32 %p1, %r0, 40;\nsetp.lt.u32 %p3, %r0, 16;\nselp.b32 %r9, 0xffff, -1, %p3;\n" + instruction));
    return result.ok() ? "" : result.reports.front().message;
  };
  for (const char* instruction : {"shfl.sync.bfly.b32 %r1, %r0, 1, 31, 0xffff;", "vote.sync.all.pred %p2, %p1, 0xffff;",
                                  "vote.sync.ballot.b32 %r1, %p1, 0xffff;", "redux.sync.add.u32 %r1, %r0, 0xffff;",
                                  "match.any.sync.b32 %r1, %r0, 0xffff;", "match.all.sync.b32 %r1, %r0, 0xffff;",
                                  "bar.warp.sync 0xffff;", "elect.sync %r1|%p2, 0xffff;"}) {
    INFO(instruction);
    CHECK_THAT(report(instruction),
               Catch::StartsWith("divergence") && Catch::Contains("lane 16: the lane's member mask 0xffff"));
  }
  CHECK_THAT(report("shfl.sync.bfly.b32 %r1, %r0, 1, 31, %r9;"),
             Catch::StartsWith("divergence") && Catch::Contains("names lane 0, whose own is 0xffff"));
  CHECK_THAT(report("@%p3 shfl.sync.bfly.b32 %r1, %r0, 16, 31, %r9;"),
             Catch::StartsWith("divergence") && Catch::Contains("the value of lane 16, which does not take part"));
  CHECK(report("@%p3 shfl.sync.bfly.b32 %r1, %r0, 8, 31, %r9;") == "");
}

TEST_CASE("ptx machine: a vector addition over several CTAs, on one core or two", "[jit][sim]") {
  std::vector<float> a(1000), b(1000), c(1000, -1);
  for (int i = 0; i < 1000; ++i) a[i] = static_cast<float>(i), b[i] = 0.5f * static_cast<float>(i);
  const std::string text = kernel_text(R"(
mov.u32 %r1, %ctaid.x;
mov.u32 %r2, %ntid.x;
mad.lo.s32 %r3, %r1, %r2, %r0;
setp.ge.s32 %p1, %r3, 1000;
@%p1 bra DONE;
mul.wide.s32 %rd4, %r3, 4;
add.s64 %rd5, %rd0, %rd4;
add.s64 %rd6, %rd1, %rd4;
add.s64 %rd7, %rd2, %rd4;
ld.global.nc.f32 %f1, [%rd5];
ld.global.f32 %f2, [%rd6];
add.f32 %f3, %f1, %f2;
st.global.f32 [%rd7], %f3;
DONE:)",
                                       3);
  const auto executor = make_executor(2);
  for (Executor* on : {static_cast<Executor*>(nullptr), executor.get()}) {
    Bench bench;
    bench.add(a), bench.add(b), bench.add(c);
    bench.shape.threads = 128, bench.shape.grid = {8, 1, 1};
    bench.options.executor = on;
    bench.options.profile = true;
    const LaunchResult result = bench.run(text);
    INFO(messages(result));
    REQUIRE(result.ok());
    for (int i = 0; i < 1000; ++i) REQUIRE(c[i] == 1.5f * static_cast<float>(i));
    CHECK(result.counters.global_bytes == 12000);
    CHECK(result.counters.global_sectors >= 375);  // one more per warp if an array does not start at a sector
    CHECK(result.counters.global_sectors <= 375 + 3 * 32);
    std::fill(c.begin(), c.end(), -1.0f);
  }
}

TEST_CASE("ptx machine: lanes of nested loops with different trip counts meet again", "[jit][sim]") {
  const std::string body = R"(
mov.u32 %r1, 0;
mov.u32 %r2, 0;
OUTER:
mov.u32 %r3, 0;
INNER:
add.u32 %r1, %r1, 1;
add.u32 %r3, %r3, 1;
setp.le.u32 %p1, %r3, %r2;
@%p1 bra INNER;
add.u32 %r2, %r2, 1;
setp.lt.u32 %p2, %r2, %r0;
@%p2 bra OUTER;
shfl.sync.idx.b32 %r4, %r1, 3, 31, -1;
mad.lo.s32 %r1, %r4, 1000, %r1;
)" + kStoreR1;
  for (const uint32_t seed : {0u, 1u, 2u, 3u}) {
    const auto out = run_words(body, 32, seed);
    for (uint32_t t = 0; t < 32; ++t) {
      const uint32_t n = std::max(t, 1u);
      REQUIRE(out[t] == n * (n + 1) / 2 + 6 * 1000);
    }
  }
}

TEST_CASE("ptx machine: shuffles of every kind, with their predicate", "[jit][sim]") {
  const auto out = run_words(R"(
shfl.sync.bfly.b32 %r1, %r0, 5, 31, -1;
shfl.sync.up.b32 %r2|%p1, %r0, 3, 0, -1;
shfl.sync.down.b32 %r3, %r0, 4, 0x1807, -1;
selp.u32 %r4, 100, 0, %p1;
mad.lo.u32 %r1, %r2, 256, %r1;
mad.lo.u32 %r1, %r3, 65536, %r1;
mad.lo.u32 %r1, %r4, 16777216, %r1;
)" + kStoreR1);
  for (uint32_t t = 0; t < 32; ++t) {
    const uint32_t up = t >= 3 ? t - 3 : t, down = (t & 7) < 4 ? t + 4 : t;
    REQUIRE(out[t] == ((t ^ 5) | up << 8 | down << 16) + (t >= 3 ? 100u << 24 : 0));
  }
}

TEST_CASE("ptx machine: votes, matches, reductions and election", "[jit][sim]") {
  const auto out = run_words(R"(
and.b32 %r2, %r0, 3;
setp.eq.u32 %p1, %r2, 1;
vote.sync.ballot.b32 %r3, %p1, -1;
match.any.sync.b32 %r4, %r2, -1;
redux.sync.add.u32 %r5, %r0, -1;
redux.sync.max.s32 %r6, %r0, -1;
vote.sync.any.pred %p2, %p1, -1;
vote.sync.all.pred %p3, %p1, -1;
elect.sync _|%p4, -1;
selp.u32 %r7, 1, 0, %p2;
selp.u32 %r8, 2, %r7, %p3;
selp.u32 %r9, 10, 0, %p4;
xor.b32 %r1, %r3, %r4;
add.u32 %r1, %r1, %r5;
add.u32 %r1, %r1, %r6;
add.u32 %r1, %r1, %r8;
add.u32 %r1, %r1, %r9;
)" + kStoreR1);
  for (uint32_t t = 0; t < 32; ++t)
    REQUIRE(out[t] == (0x22222222u ^ (0x11111111u << (t & 3))) + 496 + 31 + 1 + (t == 0 ? 10 : 0));
}

TEST_CASE("ptx machine: a reduction through shared memory and barriers", "[jit][sim]") {
  const std::string body = R"(
mov.u32 %r2, buffer;
shl.b32 %r3, %r0, 2;
add.u32 %r4, %r2, %r3;
st.shared.u32 [%r4], %r0;
mov.u32 %r5, 128;
LOOP:
bar.sync 0;
setp.ge.u32 %p1, %r0, %r5;
@%p1 bra SKIP;
shl.b32 %r6, %r5, 2;
add.u32 %r7, %r4, %r6;
ld.shared.u32 %r8, [%r7];
ld.shared.u32 %r9, [%r4];
add.u32 %r9, %r9, %r8;
st.shared.u32 [%r4], %r9;
SKIP:
shr.u32 %r5, %r5, 1;
setp.ne.u32 %p2, %r5, 0;
@%p2 bra LOOP;
bar.sync 0;
ld.shared.u32 %r1, [buffer];
)" + kStoreR1;
  for (uint32_t seed = 0; seed < 8; ++seed)
    for (const uint32_t value : run_words(body, 256, seed, ".shared .align 4 .b8 buffer[1024];\n"))
      REQUIRE(value == 255 * 128);
}

TEST_CASE("ptx machine: local memory, generic addresses and constant tables", "[jit][sim]") {
  const auto out = run_words(R"(
.local .align 8 .b8 depot[16];
.reg .b64 %SP;
mov.u64 %rd4, depot;
cvta.local.u64 %SP, %rd4;
st.u32 [%SP+4], %r0;
st.local.u32 [%rd4+8], 7;
and.b32 %r2, %r0, 3;
mul.wide.u32 %rd5, %r2, 4;
mov.u64 %rd6, table;
add.s64 %rd7, %rd6, %rd5;
ld.const.u32 %r3, [%rd7];
ld.local.u32 %r4, [%rd4+4];
ld.u32 %r5, [%SP+8];
mad.lo.u32 %r1, %r4, %r5, %r3;
)" + kStoreR1,
                             64, 0, ".const .align 4 .u32 table[4] = {10, 20, 30, 40};\n");
  for (uint32_t t = 0; t < 64; ++t) REQUIRE(out[t] == 7 * t + 10 * ((t & 3) + 1));
}

TEST_CASE("ptx machine: atomics return the old value, reductions add", "[jit][sim]") {
  std::vector<uint32_t> out(64), sum(4, 0);
  std::vector<float> total(1, 0);
  Bench bench;
  bench.add(out), bench.add(sum), bench.add(total);
  bench.shape.threads = 64;
  const LaunchResult result = bench.run(kernel_text(R"(
atom.global.add.u32 %r1, [%rd1], 2;
atom.global.max.u32 %r2, [%rd1+4], %r0;
atom.global.cas.b32 %r3, [%rd1+8], 0, 5;
red.relaxed.gpu.global.inc.u32 [%rd1+12], 9;
cvt.rn.f32.u32 %f1, %r0;
red.global.add.f32 [%rd2], %f1;
mul.wide.u32 %rd20, %r0, 4;
add.s64 %rd21, %rd0, %rd20;
st.global.u32 [%rd21], %r1;
)",
                                                    3));
  INFO(messages(result));
  REQUIRE(result.ok());
  CHECK(sum == std::vector<uint32_t>{128, 63, 5, 4});
  CHECK(total[0] == 63 * 32);
  std::sort(out.begin(), out.end());
  for (uint32_t t = 0; t < 64; ++t) REQUIRE(out[t] == 2 * t);
}

TEST_CASE("ptx machine: launches that do not fit the kernel are refused", "[jit][sim]") {
  const Program program = decode_text(kernel_text(""), "k");
  Machine machine;
  const auto code_of = [&](const LaunchShape& shape, size_t bytes) {
    try {
      const std::vector<std::byte> params(bytes);
      machine.launch(program, shape, params);
    } catch (const Error& error) {
      return std::string(error_code_name(error.code())) + ": " + error.what();
    }
    return std::string();
  };
  CHECK_THAT(code_of({.threads = 1025}, 8),
             Catch::StartsWith("invalid_argument") && Catch::Contains("a block of 1025,1,1"));
  CHECK_THAT(code_of({.threads = 32}, 4), Catch::Contains("4 bytes of parameters, the kernel has 8"));
  CHECK_THAT(code_of({.grid = {3, 1, 1}, .cluster = {2, 1, 1}}, 8), Catch::Contains("clusters of 2"));
  CHECK_THAT(code_of({.shared_bytes = 300000}, 8), Catch::StartsWith("out_of_resources") && Catch::Contains("232448"));
  CHECK_THROWS_AS(decode_text(kernel_text(""), "other"), Error);
}

}  // namespace
}  // namespace seqtile::sim
