// tests/jit/sim/async_test.cpp -- cp.async, mbarriers, bulk and tensor copies, clusters: right, and with seeded faults.
// SPDX-License-Identifier: Apache-2.0
#include "jit/sim/memory/sim_tensor_map.h"
#include "seqtile/device.h"
#include "seqtile/error.h"
#include "tests/jit/sim/sim_test.h"

namespace seqtile::sim {
namespace {

const std::string kShared = ".extern .shared .align 1024 .b8 smem[];\n";

/// 64 threads copy 16 bytes each through shared memory and store the other warp's chunk. Thread 63 copies 8 bytes.
const std::string kCopy = kernel_text(R"(
mov.u32 %r1, smem;
shl.b32 %r2, %r0, 4;
add.u32 %r3, %r1, %r2;
cvt.u64.u32 %rd4, %r2;
add.s64 %rd5, %rd1, %rd4;
add.s64 %rd6, %rd0, %rd4;
setp.eq.u32 %p1, %r0, 63;
selp.u32 %r4, 8, 16, %p1;
cp.async.cg.shared.global [%r3], [%rd5], 16, %r4;
cp.async.commit_group;
cp.async.wait_group 0;
bar.sync 0;
xor.b32 %r5, %r2, 512;
add.u32 %r6, %r1, %r5;
ld.shared.v4.u32 {%r10, %r11, %r12, %r13}, [%r6];
st.global.v4.u32 [%rd6], {%r10, %r11, %r12, %r13};
)",
                                      2, kShared);

LaunchResult copy(const std::string& text, uint32_t seed = 0) {
  std::vector<uint32_t> out(256, 0), in(256);
  for (uint32_t i = 0; i < 256; ++i) in[i] = i + 1;
  Bench bench;
  bench.add(out), bench.add(in);
  bench.shape.threads = 64, bench.shape.shared_bytes = 1024;
  bench.options.seed = seed;
  const LaunchResult result = bench.run(text);
  if (result.ok())
    for (uint32_t i = 0; i < 256; ++i) REQUIRE(out[i] == ((i ^ 128) >= 254 ? 0 : (i ^ 128) + 1));
  return result;
}

TEST_CASE("ptx machine: cp.async copies and fills with zeros", "[jit][sim]") {
  for (uint32_t seed = 0; seed < 10; ++seed) {
    const LaunchResult result = copy(kCopy, seed);
    INFO(messages(result));
    REQUIRE(result.ok());
  }
}

TEST_CASE("ptx machine: a missing wait is reported with its line", "[jit][sim]") {
  const LaunchResult result = copy(replaced(kCopy, "cp.async.wait_group 0", "cp.async.wait_group 1"));
  INFO(messages(result));
  REQUIRE(has(result, ReportKind::missing_wait));
  CHECK(result.reports[0].line == line_of(kCopy, "ld.shared.v4"));
  CHECK_THAT(result.reports[0].message,
             Catch::Contains("shared + ") && Catch::Contains("has a cp.async of device 0 CTA 0 warp"));
  CHECK(has(copy(replaced(kCopy, "cp.async.wait_group 0;", "")), ReportKind::early_exit));
}

TEST_CASE("ptx machine: a missing barrier is a race or an uninitialised read", "[jit][sim]") {
  bool is_seen = false;
  for (uint32_t seed = 0; seed < 6; ++seed) {
    const LaunchResult result = copy(replaced(kCopy, "bar.sync 0;", ""), seed);
    CHECK_FALSE(result.ok());
    is_seen |= has(result, ReportKind::race) || has(result, ReportKind::uninitialised_memory);
  }
  CHECK(is_seen);
}

TEST_CASE("ptx machine: accesses out of bounds and misaligned ones name the address", "[jit][sim]") {
  const LaunchResult shared = copy(replaced(kCopy, "xor.b32 %r5, %r2, 512", "add.u32 %r5, %r2, 512"));
  REQUIRE(has(shared, ReportKind::out_of_bounds));
  CHECK_THAT(shared.reports[0].message,
             Catch::Contains("shared + 1024 (of 1024 bytes)") && Catch::Contains("warp 1 lane 0"));
  const LaunchResult global = copy(replaced(kCopy, "st.global.v4.u32 [%rd6]", "st.global.v4.u32 [%rd6+16]"));
  REQUIRE(has(global, ReportKind::out_of_bounds));
  CHECK_THAT(global.reports[0].message, Catch::Contains("b0 + 1024 (of 1024 bytes)") && Catch::Contains("lane 31"));
  CHECK(has(copy(replaced(kCopy, "[%rd6], {", "[%rd6+4], {")), ReportKind::misaligned));
}

TEST_CASE("ptx machine: a cp.async that reads more than it copies is reported", "[jit][sim]") {
  const LaunchResult result = copy(replaced(kCopy, "selp.u32 %r4, 8, 16", "selp.u32 %r4, 20, 16"));
  INFO(messages(result));
  REQUIRE(has(result, ReportKind::out_of_bounds));
  CHECK_THAT(result.reports[0].message, Catch::Contains("lane 31: cp.async of 16 bytes reads 20"));
}

TEST_CASE("ptx machine: reads of poisoned memory and of registers never written", "[jit][sim]") {
  std::vector<uint32_t> out(256), in(256);
  Bench bench;
  bench.add(out), bench.add(in);
  bench.shape.threads = 64, bench.shape.shared_bytes = 1024;
  bench.machine.poison(&in[100], 4);
  const LaunchResult result = bench.run(kCopy);
  REQUIRE(has(result, ReportKind::uninitialised_memory));
  CHECK_THAT(result.reports[0].message, Catch::Contains("b1 + 400"));
  const LaunchResult unset = copy(replaced(kCopy, "xor.b32 %r5, %r2, 512", "@%p1 xor.b32 %r5, %r2, 512"));
  REQUIRE(has(unset, ReportKind::uninitialised_register));
  CHECK(unset.reports[0].line == line_of(kCopy, "add.u32 %r6"));
}

TEST_CASE("ptx machine: the last store of an element can be named", "[jit][sim]") {
  std::vector<uint32_t> out(256), in(256);
  Bench bench;
  bench.add(out), bench.add(in);
  bench.shape.threads = 64, bench.shape.shared_bytes = 1024;
  bench.options.record_writers = true;
  REQUIRE(bench.run(kCopy).ok());
  const auto writer = bench.machine.last_writer(&out[133]);
  REQUIRE(writer);
  CHECK(writer->line == line_of(kCopy, "st.global.v4"));
  CHECK(writer->warp == 1);
  CHECK(writer->lane == 1);
  CHECK_FALSE(bench.machine.last_writer(&in[0]));
}

/// A tensor copy loads a swizzled 2-d tile, another one stores it; box 32 x 8 of 16-bit elements, at an edge.
std::string tensor_text() {
  std::string text = kernel_text(R"(
mov.u32 %r1, smem;
add.u32 %r2, %r1, 4096;
setp.ne.u32 %p1, %r0, 0;
@%p1 bra READY;
mbarrier.init.shared::cta.b64 [%r2], 1;
fence.mbarrier_init.release.cluster;
READY:
bar.sync 0;
@%p1 bra WAIT;
mov.b64 %rd10, m0;
mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r2], 512;
cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%rd10, {-8, 5}], [%r2];
WAIT:
mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r2], 0;
@!%p2 bra WAIT;
shl.b32 %r3, %r0, 4;
add.u32 %r4, %r1, %r3;
ld.shared.v4.u32 {%r10, %r11, %r12, %r13}, [%r4];
st.shared.v4.u32 [%r4+1024], {%r10, %r11, %r12, %r13};
fence.proxy.async.shared::cta;
bar.sync 0;
@%p1 bra END;
mov.b64 %rd11, m1;
add.u32 %r5, %r1, 1024;
cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%rd11, {-8, 5}], [%r5];
cp.async.bulk.commit_group;
cp.async.bulk.wait_group.read 0;
END:)",
                                 1, kShared);
  return replaced(text, ".param .u64 p0)",
                  ".param .u64 p0, .param .align 64 .b8 m0[128], .param .align 64 .b8 m1[128])");
}

LaunchResult tensor_copy(const std::string& text, Swizzle swizzle = Swizzle::b64, uint32_t seed = 0) {
  std::vector<uint16_t> in(20 * 48), out(20 * 48, 0xffff);
  for (size_t i = 0; i < in.size(); ++i) in[i] = static_cast<uint16_t>(i);
  Bench bench;
  bench.add(in), bench.add(out);
  bench.params.resize(8);
  const uint64_t size[] = {40, 10}, stride[] = {96};
  const uint32_t box[] = {32, 8};
  append_param(bench.params, encode_tensor_map(TensorElement::bf16, in.data(), size, stride, box, swizzle));
  append_param(bench.params, encode_tensor_map(TensorElement::bf16, out.data(), size, stride, box, swizzle));
  bench.shape.shared_bytes = 8192;
  bench.options.seed = seed;
  const LaunchResult result = bench.run(text);
  if (result.ok())
    for (int r = 0; r < 20; ++r)
      for (int c = 0; c < 48; ++c) REQUIRE(out[r * 48 + c] == (c < 24 && r >= 5 && r < 10 ? in[r * 48 + c] : 0xffff));
  return result;
}

TEST_CASE("ptx machine: tensor copies cut at the tensor's edges, with and without swizzle", "[jit][sim]") {
  for (uint32_t seed = 0; seed < 6; ++seed)
    for (const Swizzle swizzle : {Swizzle::none, Swizzle::b64}) {
      const LaunchResult result = tensor_copy(tensor_text(), swizzle, seed);
      INFO(messages(result));
      REQUIRE(result.ok());
    }
}

TEST_CASE("ptx machine: each fault of a tensor copy is reported for what it is", "[jit][sim]") {
  const std::string text = tensor_text();
  CHECK(has(tensor_copy(replaced(text, "fence.proxy.async.shared::cta;", "")), ReportKind::missing_fence));
  const std::string init_fence = "fence.mbarrier_init.release.cluster;";
  const LaunchResult unfenced = tensor_copy(replaced(text, init_fence, ""));
  INFO(messages(unfenced));
  REQUIRE(has(unfenced, ReportKind::missing_fence));
  CHECK_THAT(unfenced.reports[0].message,
             Catch::Contains("the mbarrier at shared + 4096 of CTA 0, which was initialised"));
  CHECK(tensor_copy(replaced(text, init_fence, "fence.proxy.async.shared::cta;")).ok());
  CHECK(has(tensor_copy(replaced(text, "cp.async.bulk.wait_group.read 0;", "")), ReportKind::early_exit));
  CHECK(has(
      tensor_copy(replaced(text, "tensor.2d.shared", "tensor.3d.shared").replace(text.find("{-8, 5}"), 7, "{-8,5,0}")),
      ReportKind::tensor_map));
  // one more load, which no thread awaits
  const std::string wait = "WAIT:\nmbarrier";
  for (uint32_t seed = 0; seed < 8; ++seed) {
    const LaunchResult early =
        tensor_copy(replaced(text, wait,
                             "mbarrier.init.shared::cta.b64 [%r2+8], 1;\nfence.mbarrier_init.release.cluster;\n"
                             "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r2+8], 512;\n"
                             "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%r1+2048], "
                             "[%rd10, {0, 0}], [%r2+8];\n" +
                                 wait),
                    Swizzle::b64, seed);
    INFO("seed " << seed << "\n" << messages(early));
    REQUIRE(has(early, ReportKind::early_exit));
    CHECK_THAT(early.reports[0].message, Catch::Contains("none of its warps has waited for the copy at PTX line"));
  }
  const LaunchResult stuck = tensor_copy(replaced(text, "[%r2], 512;", "[%r2], 576;"));
  REQUIRE(has(stuck, ReportKind::deadlock));
  CHECK_THAT(stuck.reports[0].message,
             Catch::Contains("mbarrier.try_wait") &&
                 Catch::Contains("mbarrier at shared + 4096: phase 0, 0 of 1 arrivals missing, 64 bytes outstanding"));
}

/// Warp 0 of each CTA runs `wait`, warp 1 runs `rest`.
LaunchResult run_beside(const std::string& wait, const std::string& rest, uint32_t seed = 0) {
  std::vector<uint32_t> out(32);
  Bench bench;
  bench.add(out);
  bench.shape.threads = 64, bench.shape.grid = {3, 1, 1};
  bench.options.seed = seed;
  return bench.run(
      kernel_text("setp.lt.u32 %p1, %r0, 32;\n@!%p1 bra OTHER;\n" + wait + "bra END;\nOTHER:\n" + rest + "END:"));
}

const std::string kBarrier = "bar.sync 0;\n";
const std::string kSpin = "SPIN:\nld.acquire.gpu.global.u32 %r1, [%rd0];\nsetp.eq.u32 %p2, %r1, 0;\n@%p2 bra SPIN;\n";

TEST_CASE("ptx machine: a loop without end is a limit, whoever waits for it", "[jit][sim]") {
  for (const std::string& wait : {kBarrier, kSpin})
    for (const std::string work : {"add.u32 %r2, %r0, 1;\n", "bar.warp.sync -1;\n"}) {
      const LaunchResult result = run_beside(wait, "LOOP:\n" + work + "bra LOOP;\n");
      INFO(messages(result));
      REQUIRE(result.num_reports == 1);  // the machine does not run the other CTAs
      const std::string& message = result.reports[0].message;
      CHECK_THAT(message, Catch::StartsWith("limit: k, PTX line ") && Catch::Contains("CTA 0 warp 1: still running"));
      CHECK_THAT(message, Catch::Contains(work[0] == 'a' ? " instructions, in a loop that no path leaves"
                                                         : " synchronisations"));
      CHECK_THAT(message, Catch::Contains(wait == kSpin ? "ld.acquire" : "barrier 0: 32 of 64 threads"));
    }
}

TEST_CASE("ptx machine: a loop without end stops the other threads' CTAs too", "[jit][sim]") {
  const auto executor = make_executor(2);
  Bench bench;
  bench.shape.grid = {8, 1, 1};
  bench.options.executor = executor.get();
  const LaunchResult result = bench.run(kernel_text("LOOP:\nbra LOOP;", 0));
  INFO(messages(result));
  REQUIRE(!result.reports.empty());
  CHECK(result.num_reports <= 2);
  CHECK(result.reports[0].kind == ReportKind::limit);
}

TEST_CASE("ptx machine: a spin that nobody ends is a deadlock", "[jit][sim]") {
  for (const char* other : {"bar.sync 0;\n", "ret;\n", "bra SPIN;\n"})
    for (const uint32_t seed : {0u, 1u, 2u, 3u}) {
      const LaunchResult result = run_beside(kSpin, other, seed);
      INFO(messages(result));
      REQUIRE(!result.reports.empty());
      CHECK(result.reports[0].kind == ReportKind::deadlock);
    }
}

TEST_CASE("ptx machine: an infinite loop and a barrier that too few reach end with a report", "[jit][sim]") {
  std::vector<uint32_t> out(32);
  const auto run = [&](const std::string& body, int threads) {
    Bench bench;
    bench.add(out);
    bench.shape.threads = threads;
    bench.options.instruction_limit = 200000;
    return bench.run(kernel_text(body));
  };
  const LaunchResult endless = run("LOOP:\nadd.u32 %r1, %r1, 1;\nst.global.u32 [%rd0], 1;\nbra LOOP;", 32);
  CHECK(has(endless, ReportKind::limit));
  const LaunchResult waiting = run("setp.ge.u32 %p1, %r0, 32;\n@%p1 bra END;\nbar.sync 1, 64;\nEND:", 64);
  REQUIRE(has(waiting, ReportKind::deadlock));
  CHECK_THAT(waiting.reports[0].message, Catch::Contains("barrier 1: 32 of 64 threads"));
  const LaunchResult partial =
      run("setp.ge.u32 %p1, %r0, 7;\n@%p1 bra OTHER;\nshfl.sync.bfly.b32 %r1, %r0, 1, 31, -1;\nbra "
          "END;\nOTHER:\nshfl.sync.bfly.b32 %r1, %r0, 2, 31, -1;\nEND:",
          32);
  CHECK(has(partial, ReportKind::divergence));
  CHECK(has(run("trap;", 32), ReportKind::trap));
}

TEST_CASE("tensor map: rules that a device would enforce", "[jit][sim]") {
  alignas(16) static char memory[4096];
  const auto encode = [&](std::vector<uint64_t> size, std::vector<uint64_t> stride, std::vector<uint32_t> box,
                          int offset = 0) {
    try {
      encode_tensor_map(TensorElement::bf16, memory + offset, size, stride, box, Swizzle::b128);
    } catch (const Error& error) {
      CHECK(error.code() == ErrorCode::invalid_argument);
      return std::string(error.what());
    }
    return std::string();
  };
  CHECK(encode({64, 8}, {128}, {64, 8}).empty());
  CHECK_THAT(encode({64, 8}, {100}, {64, 8}), Catch::Contains("stride 100"));
  CHECK_THAT(encode({64, 8}, {128}, {128, 8}), Catch::Contains("256 bytes is beyond the swizzle's 128"));
  CHECK_THAT(encode({64, 8}, {128}, {64, 257}), Catch::Contains("257"));
  CHECK_THAT(encode({64, 8}, {128}, {64, 8}, 8), Catch::Contains("aligned to 16"));
  CHECK_THAT(encode({1, 1, 1, 1, 1, 1}, {16, 16, 16, 16, 16}, {8, 1, 1, 1, 1, 1}), Catch::Contains("6 dimensions"));
}

}  // namespace
}  // namespace seqtile::sim
