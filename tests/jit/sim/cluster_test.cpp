// tests/jit/sim/cluster_test.cpp -- CTAs of a cluster: each other's shared memory, and the order that mbarriers give.
// SPDX-License-Identifier: Apache-2.0
#include "tests/jit/sim/sim_test.h"

namespace seqtile::sim {
namespace {

const std::string kShared = ".extern .shared .align 1024 .b8 smem[];\n";

/// CTA 0 of a cluster of two writes to CTA 1's shared memory and arrives on its mbarrier.
const std::string kRemote = kernel_text(R"(
mov.u32 %r1, smem;
mov.u32 %r2, %cluster_ctarank;
setp.ne.u32 %p1, %r0, 0;
@!%p1 mbarrier.init.shared::cta.b64 [%r1+64], 1;
barrier.cluster.arrive.aligned;
barrier.cluster.wait.aligned;
setp.eq.u32 %p2, %r2, 1;
@%p2 bra READER;
@%p1 bra END;
mapa.shared::cluster.u32 %r3, %r1, 1;
st.shared::cluster.u32 [%r3], 77;
mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r3+64];
bra END;
READER:
mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p3, [%r1+64], 0;
@!%p3 bra READER;
ld.shared.u32 %r4, [%r1];
@!%p1 st.global.u32 [%rd0], %r4;
END:
barrier.cluster.arrive.aligned;
barrier.cluster.wait.aligned;
)",
                                        1, kShared);

LaunchResult remote(const std::string& text) {
  std::vector<uint32_t> out(1, 0);
  Bench bench;
  bench.add(out);
  bench.shape.grid = bench.shape.cluster = {2, 1, 1};
  bench.shape.shared_bytes = 128;
  const LaunchResult result = bench.run(text);
  if (result.ok()) CHECK(out[0] == 77);
  return result;
}

TEST_CASE("ptx machine: CTAs of a cluster reach each other's shared memory", "[jit][sim]") {
  const LaunchResult clean = remote(kRemote);
  INFO(messages(clean));
  REQUIRE(clean.ok());
  CHECK(has(remote(replaced(kRemote, "arrive.release.cluster", "arrive.relaxed.cluster")), ReportKind::race));
  const LaunchResult early =
      remote(replaced(kRemote, "barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;\nsetp", "setp"));
  CHECK((has(early, ReportKind::race) || has(early, ReportKind::mbarrier)));
  const std::string hurried =
      replaced(kRemote, "END:\nbarrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;", "END:");
  CHECK_FALSE(has(remote(hurried), ReportKind::race));  // the mbarrier orders the access before CTA 1's end
  CHECK(has(remote(replaced(kRemote, "mapa.shared::cluster.u32 %r3, %r1, 1", "mapa.shared::cluster.u32 %r3, %r1, 2")),
            ReportKind::out_of_bounds));
}

TEST_CASE("ptx machine: an mbarrier between CTAs needs the cluster's scope on both sides", "[jit][sim]") {
  for (const char* narrow : {"arrive.release.cta.", "arrive."}) {
    const std::string text = replaced(kRemote, "arrive.release.cluster.", narrow);
    const LaunchResult result = remote(text);
    INFO(narrow << "\n" << messages(result));
    REQUIRE(has(result, ReportKind::scope));
    CHECK(result.reports[0].line == line_of(text, narrow + std::string("shared::cluster.b64 _")));
  }
  for (const char* narrow : {"parity.acquire.cta.", "parity."}) {
    const LaunchResult result = remote(replaced(kRemote, "parity.acquire.cluster.", narrow));
    INFO(narrow << "\n" << messages(result));
    REQUIRE(has(result, ReportKind::scope));
    CHECK_THAT(result.reports[0].message, Catch::Contains("another CTA has arrived"));
  }
}

TEST_CASE("ptx machine: arrivals and waits at the cluster barrier come in pairs", "[jit][sim]") {
  const std::string arrive = "barrier.cluster.arrive.aligned;\n", wait = "barrier.cluster.wait.aligned;\n";
  const LaunchResult twice = remote(replaced(kRemote, arrive + wait, arrive + arrive + wait));
  INFO(messages(twice));
  REQUIRE(has(twice, ReportKind::barrier));
  CHECK_THAT(twice.reports[0].message, Catch::Contains("a second time without a wait"));
  const LaunchResult bare = remote(replaced(kRemote, arrive + wait + "setp", arrive + wait + wait + "setp"));
  INFO(messages(bare));
  REQUIRE(has(bare, ReportKind::barrier));
  CHECK_THAT(bare.reports[0].message, Catch::Contains("without an arrival"));
}

TEST_CASE("ptx machine: who ends behind an arrival at the cluster barrier does not stand for another", "[jit][sim]") {
  // CTA 0 arrives and ends. Warp 1 of CTA 1 raises a flag in shared memory before it arrives; warp 0 reads the flag
  // behind the barrier.
  std::vector<uint32_t> out(1, 0);
  for (uint32_t seed = 0; seed < 8; ++seed) {
    Bench bench;
    bench.add(out);
    bench.shape.grid = bench.shape.cluster = {2, 1, 1};
    bench.shape.threads = 64, bench.shape.shared_bytes = 128, bench.options.seed = seed;
    const LaunchResult result = bench.run(kernel_text(R"(
mov.u32 %r1, smem;
mov.u32 %r2, %cluster_ctarank;
setp.eq.u32 %p1, %r2, 0;
@!%p1 bra OTHER;
barrier.cluster.arrive.aligned;
ret;
OTHER:
setp.ge.u32 %p2, %r0, 32;
@!%p2 bra MEET;
mov.u32 %r3, 0;
LOOP:
add.u32 %r3, %r3, 1;
setp.lt.u32 %p3, %r3, 100000;
@%p3 bra LOOP;
st.shared.u32 [%r1], 7;
MEET:
barrier.cluster.arrive.aligned;
barrier.cluster.wait.aligned;
ld.shared.u32 %r4, [%r1];
st.global.u32 [%rd0], %r4;
)",
                                                      1, kShared));
    INFO("seed " << seed << "\n" << messages(result));
    REQUIRE_FALSE(has(result, ReportKind::uninitialised_memory));
  }
}

TEST_CASE("ptx machine: a relaxed arrival at the cluster barrier needs fence.mbarrier_init before it", "[jit][sim]") {
  const std::string barrier = "barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;\nsetp";
  const auto with = [&](const std::string& fence) {
    return replaced(kRemote, barrier,
                    fence + "\nbarrier.cluster.arrive.relaxed.aligned;\nbarrier.cluster.wait.acquire.aligned;\nsetp");
  };
  for (const char* fence : {"fence.mbarrier_init.release.cluster;", "fence.acq_rel.cluster;", "fence.sc.sys;"}) {
    const LaunchResult clean = remote(with(fence));
    INFO(fence << "\n" << messages(clean));
    CHECK(clean.ok());
  }
  for (const char* fence : {"", "fence.acq_rel.cta;", "fence.proxy.async;"}) {
    const std::string text = with(fence);
    const LaunchResult bare = remote(text);
    INFO(fence << "\n" << messages(bare));
    REQUIRE(has(bare, ReportKind::missing_fence));
    CHECK_FALSE(has(bare, ReportKind::race));
    CHECK_THAT(
        bare.reports[0].message,
        Catch::Contains("the mbarrier at shared + 64 of CTA 1 was initialised by device 0 CTA 1 warp 0 at PTX line " +
                        std::to_string(line_of(text, "mbarrier.init"))) &&
            Catch::Contains("fence.mbarrier_init.release.cluster is missing"));
  }
  // The fence covers only the inits: other data that is written before it still races.
  const LaunchResult data = remote(replaced(with("fence.mbarrier_init.release.cluster;"), "@!%p1 mbarrier.init",
                                            "@!%p1 st.shared.u32 [%r1], 5;\n@!%p1 mbarrier.init"));
  INFO(messages(data));
  CHECK(has(data, ReportKind::race));
  // The fence does not cover an init behind it.
  const LaunchResult late = remote(replaced(
      replaced(kRemote, "@!%p1 mbarrier.init.shared::cta.b64 [%r1+64], 1;", "fence.mbarrier_init.release.cluster;"),
      barrier,
      "@!%p1 mbarrier.init.shared::cta.b64 [%r1+64], 1;\nbarrier.cluster.arrive.relaxed.aligned;\n"
      "barrier.cluster.wait.acquire.aligned;\nsetp"));
  CHECK(has(late, ReportKind::missing_fence));
}

TEST_CASE("ptx machine: the inits of all warps that the fencing warp knows are covered", "[jit][sim]") {
  // Warp 1 initialises, warp 0 fences behind a barrier.
  const std::string text =
      replaced(kRemote,
               "setp.ne.u32 %p1, %r0, 0;\n@!%p1 mbarrier.init.shared::cta.b64 [%r1+64], 1;\n"
               "barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;",
               "setp.ne.u32 %p1, %r0, 0;\nsetp.ne.u32 %p4, %r0, 32;\n@!%p4 mbarrier.init.shared::cta.b64 [%r1+64], 1;\n"
               "bar.sync 0;\n@!%p1 fence.mbarrier_init.release.cluster;\nbar.sync 0;\n"
               "barrier.cluster.arrive.relaxed.aligned;\nbarrier.cluster.wait.acquire.aligned;");
  for (uint32_t seed = 0; seed < 8; ++seed) {
    const auto run = [&](const std::string& changed) {
      std::vector<uint32_t> out(1, 0);
      Bench bench;
      bench.add(out);
      bench.shape.grid = bench.shape.cluster = {2, 1, 1};
      bench.shape.threads = 64, bench.shape.shared_bytes = 128, bench.options.seed = seed;
      return bench.run(changed);
    };
    const LaunchResult clean = run(text);
    INFO(messages(clean));
    REQUIRE(clean.ok());
    CHECK(has(run(replaced(text, "bar.sync 0;\n@!%p1 fence", "@!%p1 fence")), ReportKind::missing_fence));
  }
}

}  // namespace
}  // namespace seqtile::sim
