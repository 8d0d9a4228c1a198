// tests/jit/sim/faults_test.cpp -- single faults in PTX text: the machine reports each with its kind.
// SPDX-License-Identifier: Apache-2.0
//
// The kernels are the hand-written ones for Hopper and small ones that signal between CTAs and between devices;
// tests/kernels/simulated_faults_test.cpp has the table of the library's own kernels. The machine reports nothing for
// the kernels without a fault under forty random schedules.
#include "tests/jit/sim/sim_test.h"
#include "tests/support/ptx/hopper_kernels.h"
#include "tests/support/ptx/text_faults.h"

namespace seqtile::testing {
namespace {

using namespace seqtile::sim;

template <class Kernel>
std::string find_in(const Kernel& kernel, const std::string& text, uint32_t seed) {
  Options options;
  options.seed = seed;
  options.instruction_limit = 3'000'000;
  const HopperResult result = run(kernel, text, options);
  if (!result.launch.ok()) return result.launch.reports.front().message;
  return result.is_right() ? "" : "wrong: " + result.wrong;
}

template <class Kernel>
void check_clean(const Kernel& kernel) {
  const std::string text = kernel.text();
  for (uint32_t seed = 1; seed <= 40; ++seed) {
    INFO("seed " << seed);
    REQUIRE(find_in(kernel, text, seed) == "");
  }
}

/// Two tiles after each other, five steps through a ring of three stages, two CTAs that multicast.
const HopperProduct kProduct{.m = 512, .n = 128, .k = 320};
const HopperAttention kAttention{.q_len = 200, .kv_len = 300};

const std::vector<TextFault> kProductFaults = {
    {"a stage is released one arrival early", R"((\[%bar\+24\]), 16)", "$1, 15", 0, "race", "a wgmma of CTA"},
    {"a stage is released one arrival late", R"((\[%bar\+24\]), 16)", "$1, 17", 0, "deadlock",
     "1 of 17 arrivals missing"},
    {"a stage is released by one warp only", R"(setp\.lt\.u32 %releases, %lane, 2;)",
     "mad.lo.u32 %x, %warp, 32, %lane;\nsetp.lt.u32 %releases, %x, 2;", 0, "deadlock", "arrivals missing"},
    {"a stage is released in one CTA only", R"(mapa\.shared::cluster\.u32 %remote, %full, %lane)",
     "mapa.shared::cluster.u32 %remote, %full, 0", 0, "deadlock", "shared + "},
    {"the release is relaxed", R"(arrive\.release\.cluster\.shared)", "arrive.relaxed.cluster.shared", 0, "race",
     "shared + "},
    {"more bytes are expected than come", R"(_, \[%full\], 32768)", "_, [%full], 32832", 0, "deadlock",
     "64 bytes outstanding"},
    {"fewer bytes are expected than come", R"(_, \[%full\], 32768)", "_, [%full], 32704", 0, "deadlock", "shared + "},
    {"the producer waits for the wrong parity", R"(xor\.b32 %parity, %phase, 1)", "mov.b32 %parity, %phase", 0,
     "deadlock", "mbarrier.try_wait"},
    {"the consumer does not wait for data", R"(@!%ready bra WAIT_FULL)", "// ", 0, "uninitialised memory", "shared + "},
    {"only the first warp of a group waits for data", R"(@!%ready bra WAIT_FULL;)",
     "setp.ne.u32 %is_low, %warp, 0;\n@%is_low bra NO_WAIT;\n@!%ready bra WAIT_FULL;\nNO_WAIT:", 0, "race",
     "reads shared + "},
    {"the producer loads one step too many", R"(@%over bra END;\nrem)",
     "@!%over bra GO_ON;\nshl.b32 %full, %stage, 3;\nadd.u32 %full, %full, %bar;\nxor.b32 %parity, %phase, 1;\n"
     "WAIT_MORE:\nmbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %ready, [%full+24], %parity;\n"
     "@!%ready bra WAIT_MORE;\nmbarrier.arrive.expect_tx.shared::cta.b64 _, [%full], 16384;\n"
     "mad.lo.u32 %to, %stage, 32768, %sb;\nmad.lo.u32 %to, %rank, 8192, %to;\n"
     "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
     "[%to], [%b, {0, 0}], [%full], %mask;\nbra END;\nGO_ON:\nrem",
     0, "early exit", "has waited for the copy at PTX line"},
    {"a group's barrier expects another group", R"(bar\.sync %id, 128)", "bar.sync %id, 256", 0, "deadlock",
     "128 of 256 threads"},
    {"fence.proxy.async is missing", R"(fence\.proxy\.async\.shared::cta;)", "", 0, "missing fence", "shared + 98304"},
    {"wgmma is not waited for", R"(wgmma\.wait_group\.sync\.aligned 0;)", "", 0, "missing wait",
     "an accumulator of a wgmma in flight"},
    {"wgmma's wait leaves one in flight", R"(wgmma\.wait_group\.sync\.aligned 0;)", "wgmma.wait_group.sync.aligned 1;",
     0, "race", "a wgmma of CTA"},
    {"wgmma.commit_group is missing", R"(wgmma\.commit_group\.sync\.aligned;)", "", 0, "missing wait",
     "an accumulator of a wgmma in flight"},
    {"wgmma.fence is missing", R"(wgmma\.fence\.sync\.aligned;)", "", 0, "missing fence", "wgmma.fence"},
    {"a tensor store's source is overwritten", R"(@!%not_leader cp\.async\.bulk\.wait_group\.read 0;)", "", 0, "race",
     "a bulk store of CTA"},
    {"the CTA leaves before its store has read", R"(@!%not_leader cp\.async\.bulk\.wait_group\.read 0;)", "", 1,
     "early exit", "a bulk store in flight"},
    {"the first cluster barrier is missing", R"(barrier\.cluster\.arrive\.release;\nbarrier\.cluster\.wait\.acquire;)",
     "", 0, "race", "shared + "},
    {"the last cluster barrier is missing", R"(barrier\.cluster\.arrive\.release;\nbarrier\.cluster\.wait\.acquire;)",
     "", 1, "early exit", "cluster barrier is missing"},
    {"the barrier behind the staging is missing", R"(fence\.proxy\.async\.shared::cta;\nbar\.sync %id, 128;)",
     "fence.proxy.async.shared::cta;", 0, "uninitialised memory", "shared + "},
    {"the barrier before the staging is missing", R"(bar\.sync %id, 128;\ncvt)", "cvt", 0, "race", "shared + "},
    {"the multicast names a CTA that is not there", R"(mov\.u16 %mask, 3)", "mov.u16 %mask, 7", 0, "out of bounds",
     "multicast mask"},
    {"the multicast leaves a CTA out", R"(mov\.u16 %mask, 3)", "mov.u16 %mask, 1", 0, "deadlock", "shared + "},
    {"a tile is loaded over another one", R"(add\.u32 %to, %to, 16384)", "add.u32 %to, %to, 8192", 0, "race",
     "shared + "},
    {"a tile lies beside its alignment", R"(add\.u32 %to, %to, 16384)", "add.u32 %to, %to, 16448", 0, "misaligned",
     "shared + 16448"},
    {"the ring is longer than its memory", R"(setp\.eq\.u32 %wraps, %stage, 3)", "setp.eq.u32 %wraps, %stage, 5", 0,
     "mbarrier", "shared + "},
    {"the groups ask for too many registers", R"(setmaxnreg\.inc\.sync\.aligned\.u32 232)",
     "setmaxnreg.inc.sync.aligned.u32 248", 0, "registers", "248 registers per thread are never free"},
    {"the first step adds to registers that nobody set", R"(setp\.ne\.u32 %adds, %k, 0)", "setp.eq.u32 %adds, 0, 0", 0,
     "uninitialised register", "wgmma"},
    {"the producer stops one step early", R"(setp\.lt\.u32 %over, %k, %steps)",
     "add.u32 %x, %k, 1;\nsetp.lt.u32 %over, %x, %steps", 0, "deadlock", "mbarrier.try_wait"},
    {"half of a warp stores", R"(stmatrix\.sync)", "@%is_low stmatrix.sync", 0, "divergence", "lane 16"},
    // These faults change only values.
    {"the descriptor's step along k is wrong", R"(add\.s64 %da, %da, 2)", "add.s64 %da, %da, 4", 0, "wrong", "c + "},
    {"the descriptor's swizzle is wrong", R"(mov\.b64 %fixed, \d+)", "mov.b64 %fixed, 9223372311732748288", 0, "wrong",
     "c + "},
    {"the staging is not swizzled", R"(xor\.b32 %y, %y, %x)", "mov.b32 %y, %y", 0, "wrong", "c + "},
    {"a row of a is taken twice", R"(\{%depth, %row\})", "{%depth, %mb}", 0, "wrong", "c + "},
    {"half of the result is not stored", R"(cp\.async\.bulk\.tensor\.2d\.global\.shared::cta\.bulk_group.*;)", "", 1,
     "wrong", "never stored"},
};

const std::vector<TextFault> kAttentionFaults = {
    {"a stage of k is released one arrival early", R"((\[%bar\+24\]), 8)", "$1, 7", 0, "race", "a wgmma of CTA"},
    {"a stage of v is released one arrival late", R"((\[%bar\+56\]), 8)", "$1, 9", 0, "deadlock",
     "1 of 9 arrivals missing"},
    {"q's tile has more bytes than are expected", R"(_, \[%bar\], 16384)", "_, [%bar], 16320", 0, "deadlock",
     "-64 bytes outstanding"},
    {"v is not waited for", R"(@!%ready bra WAIT_V;)", "// ", 0, "race", "shared + "},
    {"the scores are read before their wait", R"(wgmma\.wait_group\.sync\.aligned 1)",
     "wgmma.wait_group.sync.aligned 2", 0, "missing wait", "accumulator of a wgmma in flight"},
    {"the output is scaled before its wait", R"(wgmma\.wait_group\.sync\.aligned 0;\nshl)",
     "wgmma.wait_group.sync.aligned 1;\nshl", 0, "missing wait", "accumulator of a wgmma in flight"},
    {"the last product is not waited for", R"(wgmma\.wait_group\.sync\.aligned 0;\nDONE)", "DONE", 0, "missing wait",
     "accumulator of a wgmma in flight"},
    {"a fragment is changed in flight", R"(wgmma\.wait_group\.sync\.aligned 1;)",
     "mov.b32 %p0, 0;\nwgmma.wait_group.sync.aligned 1;", 0, "missing wait", "A fragment of a wgmma in flight"},
    {"the fence of the last product is missing", R"(wgmma\.fence\.sync\.aligned;)", "", 3, "missing fence",
     "wgmma.fence"},
    {"q is overwritten under the other warps", R"(bar\.sync %id, 128;\nand)", "and", 0, "race", "a wgmma of CTA"},
    {"the store is issued before all have staged", R"(fence\.proxy\.async\.shared::cta;\nbar\.sync %id, 128;)",
     "fence.proxy.async.shared::cta;", 0, "race", "shared + "},
    {"fence.proxy.async is missing", R"(fence\.proxy\.async\.shared::cta;)", "", 0, "missing fence", "shared + "},
    {"the barrier behind the mbarriers' init is missing", R"(bar\.sync 0;)", "", 0, "race", "shared + "},
    {"the bound of the rows is off by one", R"(setp\.lt\.u32 %keeps, %row1, %q_len)",
     "setp.le.u32 %keeps, %row1, %q_len", 0, "race", "lse + "},
    {"the producer keeps too many registers", R"(setmaxnreg\.dec\.sync\.aligned\.u32 24)",
     "setmaxnreg.dec.sync.aligned.u32 40", 0, "registers", "240 registers per thread are never free"},
    {"a head's output goes to another head", R"(%row, 0, %head\}\], \[%x\])", "%row, 0, 0}], [%x]", 0, "race", "o + "},
    {"a shuffle leaves half of the warp out", R"(shfl\.sync\.bfly\.b32 %u, %n0, 1, 31, -1)",
     "@%releases shfl.sync.bfly.b32 %u, %n0, 1, 31, -1", 0, "divergence", "shfl.sync.bfly"},
    // These faults change only values.
    {"the output is not rescaled", R"(mul\.f32 %o0, %o0, %a0;)", "", 0, "wrong", "o + "},
    {"v's step along the keys is wrong", R"(add\.s64 %wide, %dv, 128)", "add.s64 %wide, %dv, 64", -1, "wrong", "o + "},
    {"the diagonal is off by one", R"(add\.s32 %rest, %rest, 1)", "add.s32 %rest, %rest, 2", 0, "wrong", "o + "},
    {"the maximum forgets a lane", R"(shfl\.sync\.bfly\.b32 %u, %n1, 2, 31, -1)", "mov.b32 %u, %n1", 0, "wrong",
     "o + "},
};

}  // namespace

TEST_CASE("faults: the Hopper kernels find nothing under forty random schedules", "[jit][sim]") {
  check_clean(kProduct);
  check_clean(kAttention);
}

TEST_CASE("faults: every fault of the Hopper product is found", "[jit][sim][fault]") {
  std::string text = kProduct.text();
  // The predicate is for one of the faults.
  text.insert(text.find("shr.u32 %group, %t, 7;"),
              ".reg .pred %is_low;\n.reg .b32 %half;\nand.b32 %half, %t, 31;\n"
              "setp.lt.u32 %is_low, %half, 16;\n");
  check_faults(text, kProductFaults, [](const std::string& t, uint32_t seed) { return find_in(kProduct, t, seed); });
}

TEST_CASE("faults: every fault of Hopper attention is found", "[jit][sim][fault]") {
  check_faults(kAttention.text(), kAttentionFaults,
               [](const std::string& t, uint32_t seed) { return find_in(kAttention, t, seed); });
}

namespace {

/// Each of two devices writes to its peer's memory, raises a flag there, waits for its own flag and reads its data.
/// p0 = peer's data, p1 = peer's flag, p2 = own data, p3 = own flag.
const std::string kExchange = kernel_text(R"(
mul.wide.u32 %rd10, %r0, 4;
add.s64 %rd11, %rd0, %rd10;
add.s64 %rd12, %rd2, %rd10;
add.u32 %r1, %r0, 40;
st.global.u32 [%rd11], %r1;
bar.sync 0;
setp.ne.u32 %p1, %r0, 0;
@%p1 bra WAITED;
st.release.sys.global.u32 [%rd1], 1;
SPIN:
ld.acquire.sys.global.u32 %r3, [%rd3];
setp.eq.u32 %p4, %r3, 0;
@%p4 bra SPIN;
WAITED:
bar.sync 0;
ld.global.u32 %r4, [%rd12];
st.global.u32 [%rd12+256], %r4;
)",
                                          4);

std::string exchange(const std::string& text, uint32_t seed) {
  std::vector<uint32_t> data[2], flag[2];
  Machine machine;
  const Program program = decode_text(text, "k");
  std::vector<std::vector<Launch>> streams(2);
  for (int d = 0; d < 2; ++d) {
    data[d].assign(128, 0), flag[d].assign(8, 0);
    machine.register_memory("data" + std::to_string(d), data[d].data(), 512, d, true);
    machine.register_memory("flag" + std::to_string(d), flag[d].data(), 32, d, true);
  }
  for (int d = 0; d < 2; ++d) {
    Launch launch{&program, {}, {}};
    launch.shape.threads = 64;
    for (const uint32_t* pointer : {data[1 - d].data(), flag[1 - d].data(), data[d].data(), flag[d].data()})
      append_param(launch.params, pointer);
    streams[static_cast<size_t>(d)] = {launch};
  }
  Options options;
  options.seed = seed;
  options.instruction_limit = 3'000'000;
  options.record_writers = true;
  const LaunchResult result = machine.run_streams(streams, options);
  if (!result.ok()) return result.reports.front().message;
  for (uint32_t t = 0; t < 64; ++t)
    if (data[1][64 + t] != t + 40) {
      const auto writer = machine.last_writer(&data[1][64 + t]);
      return "wrong: " + machine.describe(&data[1][64 + t]) + " " +
             (writer ? "last stored by PTX line " + std::to_string(writer->line) : "never stored");
    }
  return "";
}

const std::vector<TextFault> kExchangeFaults = {
    {"the release is relaxed", "st.release.sys", "st.relaxed.sys", 0, "race", "data"},
    {"the acquire is missing", "ld.acquire.sys", "ld.relaxed.sys", 0, "race", "data"},
    {"the release reaches one device only", "st.release.sys", "st.release.gpu", 0, "scope too narrow", "flag"},
    {"the acquire reaches one device only", "ld.acquire.sys", "ld.acquire.gpu", 0, "scope too narrow", "flag"},
    {"the flag is raised before all have written", R"(bar\.sync 0;\nsetp)", "setp", 0, "race", "data"},
    {"only one warp waits for the flag", R"(bar\.sync 0;\nld)", "ld", 0, "race", "data"},
    {"nobody raises the flag", R"(st\.release\.sys\.global\.u32 \[%rd1\], 1;)", "", 0, "deadlock", "ld.acquire"},
    {"a loop never ends", "@%p4 bra SPIN", "bra SPIN", 0, "deadlock", "ld.acquire"},
    {"a loop without a wait never ends", R"(bar\.sync 0;\nld)",
     "bar.sync 0;\nmov.u32 %r9, 0;\nLOOP:\nadd.u32 %r9, %r9, 1;\nbra LOOP;\nld", 0, "limit",
     "in a loop that no path leaves"},
    {"the bound of the data is off", R"(\[%rd12\+256\])", "[%rd12+260]", 0, "out of bounds", "data"},
    {"an address is beside its alignment", R"(\[%rd11\], %r1)", "[%rd11+2], %r1", 0, "misaligned", "data"},
    {"an element goes to the wrong place", R"(mul\.wide\.u32 %rd10, %r0, 4)",
     "and.b32 %r9, %r0, 62;\nmul.wide.u32 %rd10, %r9, 4", 0, "race", "different values"},
    {"a value is wrong", R"(add\.u32 %r1, %r0, 40)", "add.u32 %r1, %r0, 41", 0, "wrong", "PTX line"},
};

}  // namespace

namespace {

/// Runs a body on 128 threads and 4 KiB of global memory.
LaunchResult loop(const std::string& body) {
  std::vector<uint32_t> data(1024, 1);
  Bench bench;
  bench.add(data);
  bench.shape.threads = 128;
  return bench.run(
      kernel_text("mov.u32 %r9, 0;\nmov.u32 %r1, 1;\nand.b32 %r8, %r0, 31;\nsetp.eq.u32 %p2, %r8, 0;\n" + body));
}

}  // namespace

TEST_CASE("faults: a loop without end is reported after a bounded number of instructions", "[jit][sim][fault]") {
  const auto check = [](const std::string& body, uint64_t most, const std::string& what) {
    const LaunchResult result = loop(body);
    INFO(body << "\n" << messages(result));
    REQUIRE(has(result, ReportKind::limit));
    CHECK_THAT(messages(result), Catch::Contains(what));
    CHECK(result.counters.warp_instructions < most);
  };
  const std::string no_way_out = "in a loop that no path leaves";
  check("LOOP:\n@%p2 ld.global.u32 %r1, [%rd0];\nadd.u32 %r9, %r9, %r1;\nbra LOOP;", 3'000'000, no_way_out);
  // Other warps see a store as progress, but the loop still has no end.
  check("setp.ne.u32 %p1, %r0, 0;\nLOOP:\n@!%p1 st.global.u32 [%rd0], %r9;\nbra LOOP;", 3'000'000, no_way_out);
  check("setp.ne.u32 %p1, %r0, 0;\nLOOP:\n@!%p1 red.global.add.u32 [%rd0], 1;\nbra LOOP;", 3'000'000, no_way_out);
  // The machine finds a condition that holds for ever by the count of instructions without a visible effect.
  check("LOOP:\n@%p2 ld.global.u32 %r1, [%rd0];\nsetp.ne.u32 %p1, %r1, 0;\n@%p1 bra LOOP;", 6'000'000,
        "of which other warps see nothing");
}

TEST_CASE("faults: a long loop that ends is none, nor one beside it that does not", "[jit][sim]") {
  const std::string body =
      "LOOP:\n@%p2 ld.global.u32 %r1, [%rd0];\nadd.u32 %r9, %r9, %r1;\nsetp.lt.u32 %p1, %r9, 200000;\n@%p1 bra LOOP;";
  const LaunchResult result = loop(body);
  INFO(messages(result));
  CHECK(result.ok());
  CHECK(result.counters.warp_instructions > 3'000'000);
  // The text has a loop that no path leaves, but no warp reaches it.
  CHECK(loop(body + "\n@!%p1 bra END;\nLOST:\nbra LOST;\nEND:").ok());
}

TEST_CASE("faults: streams of launches end at the limit of instructions too", "[jit][sim][fault]") {
  std::vector<uint32_t> data(64, 1);
  Machine machine;
  machine.register_memory("data", data.data(), data.size() * sizeof(uint32_t));
  const Program program = decode_text(
      kernel_text("LOOP:\nst.global.u32 [%rd0+4], %r9;\nld.global.u32 %r1, [%rd0];\nsetp.ne.u32 %p1, %r1, 0;\n"
                  "add.u32 %r9, %r1, 1;\n@%p1 bra LOOP;\n"),
      "k");
  Launch launch{&program, {}, {}};
  append_param(launch.params, data.data());
  const std::vector<Launch> stream(1, launch);
  Options options;
  options.checks = Checks::none();
  options.instruction_limit = 5'000'000;
  const LaunchResult result = machine.run_streams({&stream, 1}, options);
  INFO(messages(result));
  REQUIRE(has(result, ReportKind::limit));
  CHECK_THAT(messages(result), Catch::Contains("still running after 5000000 instructions"));
}

TEST_CASE("faults: every fault of an exchange between two devices is found", "[jit][sim][fault]") {
  for (uint32_t seed = 0; seed <= 40; ++seed) REQUIRE(exchange(kExchange, seed) == "");
  check_faults(kExchange, kExchangeFaults, exchange);
}

}  // namespace seqtile::testing
