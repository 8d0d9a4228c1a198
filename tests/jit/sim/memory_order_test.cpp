// tests/jit/sim/memory_order_test.cpp -- races in global memory by scopes and orders: CTAs apart, together, on devices.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "tests/jit/sim/sim_test.h"

namespace seqtile::sim {
namespace {

/// CTA 0 writes data and raises a flag; CTA 1 waits for the flag and copies. b0 = data, b1 = flag, b2 = result.
const std::string kHandOver = kernel_text(R"(
mov.u32 %r1, %ctaid.x;
mul.wide.u32 %rd20, %r0, 4;
add.s64 %rd21, %rd0, %rd20;
add.s64 %rd22, %rd2, %rd20;
setp.ne.u32 %p1, %r1, 0;
@%p1 bra CONSUMER;
add.u32 %r2, %r0, 100;
st.global.u32 [%rd21], %r2;
bar.sync 0;
setp.ne.u32 %p2, %r0, 0;
@%p2 bra END;
st.release.gpu.global.u32 [%rd1], 1;
bra END;
CONSUMER:
setp.ne.u32 %p3, %r0, 0;
@%p3 bra READY;
SPIN:
ld.acquire.gpu.global.u32 %r3, [%rd1];
setp.eq.u32 %p4, %r3, 0;
@%p4 bra SPIN;
READY:
bar.sync 0;
ld.global.u32 %r4, [%rd21];
st.global.u32 [%rd22], %r4;
END:)",
                                          3);

LaunchResult hand_over(const std::string& text, bool cooperative, uint32_t seed = 0) {
  std::vector<uint32_t> data(64, 0), flag(1, 0), result(64, 0);
  Bench bench;
  bench.add(data), bench.add(flag), bench.add(result);
  bench.shape.threads = 64, bench.shape.grid = {2, 1, 1}, bench.shape.cooperative = cooperative;
  bench.options.seed = seed;
  const LaunchResult done = bench.run(text);
  if (done.ok())
    for (uint32_t t = 0; t < 64; ++t) REQUIRE(result[t] == t + 100);
  return done;
}

TEST_CASE("ptx machine: a release and an acquire order the data of CTAs, together or apart", "[jit][sim]") {
  for (const bool cooperative : {false, true})
    for (uint32_t seed = 0; seed < 10; ++seed) {
      const LaunchResult result = hand_over(kHandOver, cooperative, seed);
      INFO(messages(result));
      REQUIRE(result.ok());
    }
}

TEST_CASE("ptx machine: a weakened flag is a race on the data that it guards", "[jit][sim]") {
  const auto check = [&](const std::string& from, const std::string& to) {
    for (const bool cooperative : {false, true}) {
      const std::string text = replaced(kHandOver, from, to);
      const int line = line_of(text, "ld.global.u32 %r4");
      const LaunchResult result = hand_over(text, cooperative);
      INFO(to << (cooperative ? ", together\n" : ", apart\n") << messages(result));
      REQUIRE(has(result, ReportKind::race));
      CHECK(std::any_of(result.reports.begin(), result.reports.end(), [&](const Report& r) {
        return r.kind == ReportKind::race && r.line == line && r.message.find("b0 + ") != std::string::npos;
      }));
    }
  };
  check("st.release.gpu.global", "st.relaxed.gpu.global");
  check("ld.acquire.gpu.global", "ld.relaxed.gpu.global");
  check("ld.acquire.gpu.global", "ld.volatile.global");
  check("st.release.gpu", "st.release.cta");
  check("bar.sync 0;\nsetp.ne.u32 %p2", "setp.ne.u32 %p2");
}

TEST_CASE("ptx machine: a relaxed store after a fence releases, and no race is invented", "[jit][sim]") {
  for (const bool cooperative : {false, true}) {
    const LaunchResult result = hand_over(replaced(kHandOver, "st.release.gpu.global.u32 [%rd1], 1;",
                                                   "fence.acq_rel.gpu;\nst.relaxed.gpu.global.u32 [%rd1], 1;"),
                                          cooperative);
    INFO(messages(result));
    CHECK(result.ok());
  }
}

TEST_CASE("ptx machine: a fence behind a relaxed load acquires what it has seen, together or apart", "[jit][sim]") {
  const std::string text = replaced(replaced(kHandOver, "ld.acquire.gpu.global", "ld.relaxed.gpu.global"),
                                    "@%p4 bra SPIN;", "@%p4 bra SPIN;\nfence.acq_rel.gpu;");
  for (const bool cooperative : {false, true}) {
    const LaunchResult result = hand_over(text, cooperative);
    INFO(messages(result));
    CHECK(result.ok());
    CHECK(has(hand_over(replaced(text, "fence.acq_rel.gpu", "fence.acq_rel.cta"), cooperative), ReportKind::race));
  }
}

TEST_CASE("ptx machine: a flag whose scope is too narrow is reported for what it is", "[jit][sim]") {
  const LaunchResult result = hand_over(replaced(kHandOver, "ld.acquire.gpu.global", "ld.acquire.cta.global"), true);
  INFO(messages(result));
  CHECK(has(result, ReportKind::scope));
}

TEST_CASE("ptx machine: two CTAs that write the same element race, atomics do not", "[jit][sim]") {
  std::vector<uint32_t> data(32, 0);
  for (const std::string op : {"st.global.u32 [%rd21], %r0;", "red.relaxed.gpu.global.add.u32 [%rd21], 1;"}) {
    const std::string text = kernel_text("mul.wide.u32 %rd20, %r0, 4;\nadd.s64 %rd21, %rd0, %rd20;\n" + op);
    for (const int cluster : {1, 2}) {
      Bench bench;
      bench.add(data);
      bench.shape.grid = {2, 1, 1}, bench.shape.cluster = {cluster, 1, 1};
      const LaunchResult result = bench.run(text);
      INFO(messages(result));
      CHECK(has(result, ReportKind::race) == (op[0] == 's'));
      if (!result.ok()) CHECK(result.reports[0].line == line_of(text, op));
    }
  }
}

TEST_CASE("ptx machine: the next launch may read what the one before has written", "[jit][sim]") {
  std::vector<uint32_t> data(32, 0);
  Bench bench;
  bench.add(data);
  bench.shape.grid = {1, 1, 1};
  const std::string text = kernel_text(
      "mul.wide.u32 %rd20, %r0, 4;\nadd.s64 %rd21, %rd0, %rd20;\nld.global.u32 %r1, [%rd21];\nadd.u32 %r1, %r1, "
      "1;\nst.global.u32 [%rd21], %r1;\n");
  for (int launch = 0; launch < 3; ++launch) REQUIRE(bench.run(text).ok());
  CHECK(data == std::vector<uint32_t>(32, 3));
}

/// Each device adds its data to its peer's buffer behind a flag of the system's scope. p0 = peer's data, p1 = peer's
/// flag, p2 = own data, p3 = own flag. The last word of the result says that the data has arrived.
const std::string kPush = kernel_text(R"(
st.global.u32 [%rd0], 42;
st.release.sys.global.u32 [%rd1], 1;
SPIN:
ld.acquire.sys.global.u32 %r3, [%rd3];
setp.eq.u32 %p4, %r3, 0;
@%p4 bra SPIN;
ld.global.u32 %r4, [%rd2];
st.global.u32 [%rd2+4], %r4;
)",
                                      4);

LaunchResult push(const std::string& text, bool is_peer_visible = true, int epochs = 1) {
  std::vector<uint32_t> data[2], flag[2];
  Machine machine;
  const Program program = decode_text(text, "k");
  std::vector<std::vector<Launch>> streams(2);
  for (int d = 0; d < 2; ++d) {
    data[d].assign(8, 0), flag[d].assign(8, 0);
    machine.register_memory("data" + std::to_string(d), data[d].data(), 32, d, is_peer_visible);
    machine.register_memory("flag" + std::to_string(d), flag[d].data(), 32, d, true);
  }
  for (int d = 0; d < 2; ++d) {
    Launch launch{&program, {}, {}};
    for (const uint32_t* pointer : {data[1 - d].data(), flag[1 - d].data(), data[d].data(), flag[d].data()})
      append_param(launch.params, pointer);
    streams[d].assign(static_cast<size_t>(epochs), launch);
  }
  const LaunchResult result = machine.run_streams(streams);
  if (result.ok()) CHECK((data[0][1] == 42 && data[1][1] == 42));
  return result;
}

TEST_CASE("ptx machine: devices that push to each other, right and with each fault", "[jit][sim]") {
  const LaunchResult clean = push(kPush);
  INFO(messages(clean));
  REQUIRE(clean.ok());
  CHECK(has(push(replaced(kPush, "st.release.sys", "st.relaxed.sys")), ReportKind::race));
  CHECK(has(push(replaced(kPush, "ld.acquire.sys", "ld.relaxed.sys")), ReportKind::race));
  const LaunchResult narrow = push(replaced(kPush, "st.release.sys", "st.release.gpu"));
  INFO(messages(narrow));
  CHECK(has(narrow, ReportKind::race));
  CHECK(has(narrow, ReportKind::scope));
  CHECK(has(push(kPush, false), ReportKind::private_memory));
  // Without a parity the next epoch overwrites data that the peer may still read.
  CHECK(has(push(kPush, true, 3), ReportKind::race));
}

TEST_CASE("ptx machine: who watches memory is told of all accesses to it in their order", "[jit][sim]") {
  for (const bool is_checked : {true, false}) {
    std::vector<uint32_t> data(64, 0), flag(1, 0), result(64, 0);
    std::vector<WatchedAccess> flags, results;
    Bench bench;
    bench.add(data), bench.add(flag), bench.add(result);
    bench.shape.threads = 64, bench.shape.grid = {2, 1, 1}, bench.shape.cooperative = true;
    if (!is_checked) bench.options.checks = Checks::none();
    bench.machine.watch(flag.data(), [&](const WatchedAccess& access) { flags.push_back(access); });
    bench.machine.watch(result.data(), [&](const WatchedAccess& access) { results.push_back(access); });
    CHECK_THROWS_WITH(bench.machine.watch(&data[1], {}), Catch::Contains("no registered memory begins there"));
    REQUIRE(bench.run(kHandOver).ok());
    const auto sent = std::ranges::find(flags, true, &WatchedAccess::is_write);
    REQUIRE(sent != flags.end());
    CHECK((sent->order == Order::release && sent->scope == Scope::gpu && sent->value == 1 && sent->offset == 0));
    for (auto access = flags.begin(); access != flags.end(); ++access)
      CHECK((access == sent || access->value == (access < sent ? 0 : 1)));
    CHECK(flags.back().order == Order::acquire);
    REQUIRE(results.size() == 64);
    for (const WatchedAccess& access : results) CHECK(access.value == access.offset / 4 + 100);
  }
}

}  // namespace
}  // namespace seqtile::sim
