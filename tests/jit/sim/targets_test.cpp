// tests/jit/sim/targets_test.cpp -- the forms of each target: the machine's table, and ptxas if there is one.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <set>

#include "jit/codegen/nvptx/child_process.h"
#include "jit/codegen/nvptx/ptxas.h"
#include "jit/sim/decode/decode.h"
#include "jit/sim/device/sim_device.h"
#include "seqtile/error.h"
#include "tests/jit/sim/sim_test.h"

namespace seqtile::sim {
namespace {

struct Example {
  std::string text;
  PtxTarget least;
};

/// All forms of ptx_ops.def, and the modifiers and scalar forms of newer targets, by their first target.
constexpr const char* kSm80[] = {
    "bra.uni L0;",
    "brx.idx %r1, table;",
    "call.uni callee;",
    "wmma.load.a.sync.aligned.row.m16n16k16.shared.bf16 {%r2,%r3,%r4,%r5}, [%r1], %r6;",
    "wmma.store.d.sync.aligned.col.m8n32k16.global.f32 [%rd0], {%f1,%f2,%f3,%f4,%f5,%f6,%f7,%f8};",
    "wmma.mma.sync.aligned.row.col.m16n16k16.f32.bf16.bf16.f32 {%f1,%f2,%f3,%f4,%f5,%f6,%f7,%f8}, {%r2,%r3,%r4,%r5}, "
    "{%r2,%r3,%r4,%r5}, {%f1,%f2,%f3,%f4,%f5,%f6,%f7,%f8};",
    "mma.sync.aligned.m16n8k16.row.col.s32.s8.u8.s32 {%r10,%r11,%r12,%r13},{%r2,%r3},{%r6},{%r10,%r11,%r12,%r13};",
    "mma.sync.aligned.m16n8k8.row.col.f16.f16.f16.f16 {%r10,%r11},{%r2,%r3},{%r6},{%r10,%r11};",
    "add.rz.f32 %f1, %f2, %f3;",
    "rcp.approx.ftz.f64 %fd1, %fd2;",
    "bfind.shiftamt.u32 %r2, %r3;",
    "dp2a.lo.s32.u32 %r2, %r3, %r4, %r5;",
    "@%p1 exit;",
    "@%p1 trap;",
    "nanosleep.u32 %r0;",
    "ld.global.u32 %r2, [%rd0];",
    "ld.relaxed.cta.global.u32 %r2, [%rd0];",
    "ld.shared::cta.u32 %r2, [%r1];",
    "ld.global.L1::no_allocate.L2::256B.u32 %r2, [%rd0];",
    "ldu.global.u32 %r2, [%rd0];",
    "st.shared::cta.u32 [%r1], %r2;",
    "atom.global.add.u32 %r2, [%rd0], %r3;",
    "atom.global.add.noftz.f16x2 %r2, [%rd0], %r3;",
    "red.global.add.noftz.f16 [%rd0], %rs2;",
    "red.global.add.f32 [%rd0], %f2;",
    "prefetch.global.L2 [%rd0];",
    "prefetchu.L1 [%rd0];",
    "createpolicy.fractional.L2::evict_last.b64 %rd1, 1.0;",
    "shfl.sync.up.b32 %r2, %r3, 1, 0, -1;",
    "vote.sync.any.pred %p1, %p2, -1;",
    "vote.sync.ballot.b32 %r2, %p1, -1;",
    "match.any.sync.b32 %r2, %r3, -1;",
    "match.any.sync.b64 %r2, %rd1, -1;",
    "match.all.sync.b32 %r2|%p1, %r3, -1;",
    "redux.sync.add.u32 %r2, %r3, -1;",
    "redux.sync.and.b32 %r2, %r3, -1;",
    "activemask.b32 %r2;",
    "bar.warp.sync -1;",
    "barrier.cta.sync.aligned 0, 32;",
    "bar.arrive 1, 64;",
    "bar.red.popc.u32 %r2, 0, %p1;",
    "barrier.red.and.pred %p2, 0, %p1;",
    "fence.proxy.alias;",
    "fence.acq_rel.gpu;",
    "membar.gl;",
    "mbarrier.init.shared.b64 [%r1], 1;",
    "mbarrier.inval.shared::cta.b64 [%r1];",
    "mbarrier.arrive.shared.b64 %rd1, [%r1];",
    "mbarrier.arrive.release.cta.shared::cta.b64 _, [%r1];",
    "mbarrier.arrive_drop.shared.b64 %rd1, [%r1];",
    "mbarrier.test_wait.parity.shared.b64 %p1, [%r1], 0;",
    "mbarrier.test_wait.acquire.cta.shared::cta.b64 %p1, [%r1], %rd1;",
    "cp.async.cg.shared.global.L2::128B [%r1], [%rd0], 16, %r3;",
    "cp.async.commit_group;",
    "cp.async.wait_group 0;",
    "cp.async.wait_all;",
    "cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%r1];",
    "ldmatrix.sync.aligned.m8n8.x1.shared::cta.b16 {%r2}, [%r1];",
    "ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%r2, %r3}, [%r1];",
    "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r2, %r3, %r4, %r5}, [%r1];",
    "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%f1,%f2,%f3,%f4},{%r2,%r3,%r4,%r5},{%r6,%r7},"
    "{%f1,%f2,%f3,%f4};",
    "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f1,%f2,%f3,%f4},{%r2,%r3,%r4,%r5},{%r6,%r7},"
    "{%f1,%f2,%f3,%f4};",
    "mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 {%r10,%r11},{%r2,%r3,%r4,%r5},{%r6,%r7},{%r10,%r11};",
    "mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32 {%f1,%f2,%f3,%f4},{%r2,%r3},{%r6},{%f1,%f2,%f3,%f4};",
    "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%f1,%f2,%f3,%f4},{%r2,%r3},{%r6},{%f1,%f2,%f3,%f4};",
    "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%f1,%f2,%f3,%f4},{%r2,%r3,%r4,%r5},{%r6,%r7},"
    "{%f1,%f2,%f3,%f4};",
    "mma.sync.aligned.m16n8k4.row.col.f32.tf32.tf32.f32 {%f1,%f2,%f3,%f4},{%r2,%r3},{%r6},{%f1,%f2,%f3,%f4};",
    "mma.sync.aligned.m16n8k32.row.col.satfinite.s32.s8.u8.s32 {%r10,%r11,%r12,%r13},{%r2,%r3,%r4,%r5},{%r6,%r7},"
    "{%r10,%r11,%r12,%r13};",
    "mov.u32 %r2, %lanemask_lt;",
    "mov.u32 %r2, %dynamic_smem_size;",
    "fma.rn.bf16x2 %r1, %r2, %r3, %r4;",
    "min.NaN.bf16 %rs1, %rs2, %rs3;",
    "neg.bf16x2 %r1, %r2;",
    "add.f16x2 %r1, %r2, %r3;",
    "tanh.approx.f16 %rs1, %rs2;",
    "setp.lt.f16 %p1, %rs1, %rs2;",
    "cvt.rn.bf16.f32 %rs1, %f1;",
    "cvt.rz.bf16.f32 %rs1, %f1;",
    "cvt.f32.bf16 %f1, %rs1;",
    "cvt.rn.relu.bf16x2.f32 %r1, %f1, %f2;",
    "cvt.rna.tf32.f32 %r1, %f1;",
    "min.NaN.f32 %f1, %f2, %f3;",
    "cvta.shared::cta.u64 %rd1, %rd2;"};
constexpr const char* kSm89[] = {
    ("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e5m2.f32 {%f1,%f2,%f3,%f4},{%r2,%r3,%r4,%r5},{%r6,%r7},"
     "{%f1,%f2,%f3,%f4};"),
    "cvt.rn.satfinite.e4m3x2.f32 %rs1, %f1, %f2;", "cvt.rn.f16x2.e5m2x2 %r1, %rs1;"};
constexpr const char* kSm90[] = {
    "griddepcontrol.wait;",
    "ld.acquire.cluster.global.u32 %r2, [%rd0];",
    "ld.shared::cluster.u32 %r2, [%r1];",
    "st.release.cluster.global.u32 [%rd0], %r2;",
    "st.shared::cluster.u32 [%r1], %r2;",
    "atom.cluster.global.add.u32 %r2, [%rd0], %r3;",
    "atom.shared::cluster.add.u32 %r2, [%r1], %r3;",
    "atom.global.add.noftz.bf16 %rs1, [%rd0], %rs2;",
    "red.global.add.noftz.bf16x2 [%rd0], %r3;",
    "red.global.add.v2.f32 [%rd0], {%f3, %f4};",
    "prefetch.tensormap [%rd0];",
    "elect.sync %r2|%p1, -1;",
    "barrier.cluster.arrive.relaxed.aligned;",
    "barrier.cluster.wait.acquire;",
    "fence.proxy.async.shared::cta;",
    "fence.proxy.tensormap::generic.release.gpu;",
    "fence.mbarrier_init.release.cluster;",
    "fence.acq_rel.cluster;",
    "mbarrier.arrive.shared.b64 %rd1, [%r1], 2;",
    "mbarrier.arrive.relaxed.cta.shared::cta.b64 %rd1, [%r1];",
    "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r1];",
    "mbarrier.arrive.expect_tx.shared.b64 %rd1, [%r1], 16;",
    "mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%r1], 16;",
    "mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%r1], 16;",
    "mbarrier.test_wait.parity.acquire.cluster.shared::cta.b64 %p1, [%r1], 0;",
    "mbarrier.try_wait.parity.shared.b64 %p1, [%r1], 0;",
    "mbarrier.try_wait.shared.b64 %p1, [%r1], %rd1;",
    "mapa.shared::cluster.u32 %r2, %r1, 0;",
    "mapa.u64 %rd2, %rd0, 0;",
    "getctarank.shared::cluster.u32 %r2, %r1;",
    "getctarank.u64 %r2, %rd0;",
    "cp.async.bulk.commit_group;",
    "cp.async.bulk.wait_group 0;",
    "cp.async.bulk.prefetch.L2.global [%rd0], 16;",
    "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%rd0, {%r2, %r3}], [%r4];",
    "cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%rd0, {%r2, %r3}], [%r1];",
    "cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.bulk_group [%rd0, {%r2, %r3}], [%r1];",
    "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%rd0], 16, [%r4];",
    "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%r1], [%r2], 16, [%r4];",
    "cp.async.bulk.global.shared::cta.bulk_group [%rd0], [%r1], 16;",
    "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%rd0], [%r1], 16;",
    "stmatrix.sync.aligned.m8n8.x1.shared.b16 [%r1], {%r2};",
    "stmatrix.sync.aligned.m8n8.x2.shared.b16 [%r1], {%r2, %r3};",
    "stmatrix.sync.aligned.m8n8.x4.trans.shared::cta.b16 [%r1], {%r2, %r3, %r4, %r5};",
    "mov.u32 %r2, %clusterid.x;",
    "mov.u32 %r2, %cluster_ctarank;",
    "mov.u32 %r2, %nclusterid.y;",
    "add.bf16 %rs1, %rs2, %rs3;",
    "mul.bf16x2 %r1, %r2, %r3;",
    "ex2.approx.ftz.bf16 %rs1, %rs2;",
    "tanh.approx.bf16x2 %r1, %r2;",
    "setp.lt.bf16 %p1, %rs1, %rs2;",
    "cvt.rn.bf16.s32 %rs1, %r1;",
    "cvt.rzi.s32.bf16 %r1, %rs1;",
    "cvt.ftz.f32.bf16 %f1, %rs1;",
    "cvt.rn.tf32.f32 %r1, %f1;",
    "cvta.to.shared::cluster.u64 %rd1, %rd2;"};
constexpr const char* kSm90a[] = {
    "setmaxnreg.inc.sync.aligned.u32 232;",
    "wgmma.fence.sync.aligned;",
    "wgmma.commit_group.sync.aligned;",
    "wgmma.wait_group.sync.aligned 0;",
    "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%f1,%f2,%f3,%f4}, %rd1, %rd2, 1, 1, 1, 0, 0;",
    "wgmma.mma_async.sync.aligned.m64n8k8.f32.tf32.tf32 {%f1,%f2,%f3,%f4}, %rd1, %rd2, 1, 1, 1;",
    "wgmma.mma_async.sync.aligned.m64n8k32.f32.e4m3.e5m2 {%f1,%f2,%f3,%f4}, %rd1, %rd2, 1, 1, 1;",
    "wgmma.mma_async.sync.aligned.m64n8k32.s32.s8.s8 {%r10,%r11,%r12,%r13}, %rd1, %rd2, 1;"};
constexpr const char* kSm100[] = {"add.rn.f32x2 %rd1, %rd2, %rd3;", "fma.rn.f32.f16 %f1, %rs1, %rs2, %f2;",
                                  "max.f32 %f1, %f2, %f3, %f4;"};
/// A form that the assembler has under another architecture's letter: the test does not assemble it.
constexpr const char* kSm100a[] = {"redux.sync.max.abs.f32 %f1, %f2, -1;"};

std::vector<Example> examples() {
  std::vector<Example> all;
  for (const char* text : kSm80) all.push_back({text, PtxTarget::sm_80});
  for (const char* text : kSm89) all.push_back({text, PtxTarget::sm_89});
  for (const char* text : kSm90) all.push_back({text, PtxTarget::sm_90});
  for (const char* text : kSm90a) all.push_back({text, PtxTarget::sm_90a});
  for (const char* text : kSm100) all.push_back({text, PtxTarget::sm_100});
  return all;
}

/// A kernel with the examples, one a line. They begin at line `*first`.
std::string text_for(PtxTarget target, const std::string& body, int* first = nullptr) {
  std::string text =
      replaced(replaced(kernel_text("table: .branchtargets L0;\nmov.u32 %r1, smem;\n" + body + "\nL0:", 1,
                                    ".extern .shared .align 1024 .b8 smem[];\n.func callee() { ret; }\n"),
                        ".version 8.0", ".version 8.6"),
               "sm_90a", std::string(ptx_target_name(target)));
  text = replaced(text, ")\n{", ") .reqntid 128\n{");
  if (first != nullptr) *first = line_of(text, "mov.u32 %r1, smem;") + 1;
  return text;
}

std::string error_of(const std::string& text) {
  try {
    decode_text(text, "k");
  } catch (const Error& error) {
    CHECK(error.code() == ErrorCode::compile_failed);
    return error.what();
  }
  return "";
}

TEST_CASE("ptx targets: every form runs from its own target on, and before it says what it needs", "[jit][sim]") {
  std::set<const PtxForm*> seen;
  std::vector<Example> all = examples();
  for (const char* text : kSm100a) all.push_back({text, PtxTarget::sm_100});
  for (const Example& example : all) {
    INFO(example.text);
    REQUIRE(error_of(text_for(example.least, example.text)) == "");
    CHECK(error_of(text_for(PtxTarget::sm_100, example.text)) == "");
    const size_t start = example.text[0] == '@' ? example.text.find(' ') + 1 : 0;
    const size_t end = example.text.find_first_of(" ;", start);
    if (const PtxForm* form = find_form(Opcode(std::string_view(example.text).substr(start, end - start))))
      seen.insert(form);
    if (example.least == PtxTarget::sm_80) continue;
    const auto older = static_cast<PtxTarget>(static_cast<int>(example.least) - 1);
    int line = 0;
    const std::string error = error_of(text_for(older, example.text, &line));
    CHECK_THAT(error, Catch::StartsWith("PTX line " + std::to_string(line)) &&
                          Catch::Contains(" needs " + std::string(ptx_target_name(example.least)) +
                                          ", the text says .target " + std::string(ptx_target_name(older)) + ";"));
  }
  size_t forms = 0;
#define SEQTILE_PTX_OP(operation, target, pattern, operands, kind) ++forms;
#include "jit/sim/decode/ptx_ops.def"
#undef SEQTILE_PTX_OP
  CHECK(seen.size() == forms);
}

/// Lines that the assembler refuses; nullopt if it does not know the target or the version.
std::optional<std::set<int>> refused_lines(const std::string& assembler, PtxTarget target, const std::string& text) {
  const MemoryFile input(text);
  const MemoryFile* const files[] = {&input};
  const std::string arguments[] = {assembler, "-arch=" + std::string(ptx_target_name(target)), input.path(), "-o",
                                   "/dev/null"};
  const ChildResult result = run_child(arguments, files, {});
  std::set<int> lines;
  for (size_t at = result.output.find(", line "); at != std::string::npos; at = result.output.find(", line ", at + 1)) {
    const size_t end = result.output.find('\n', at);
    if (result.output.substr(at, end - at).find("error") != std::string::npos)
      lines.insert(std::atoi(result.output.c_str() + at + 7));
  }
  if (lines.empty() && !result.ok()) return {};
  return lines;
}

TEST_CASE("ptx targets: ptxas refuses the same forms", "[jit][sim][ptxas]") {
  const auto assembler = nvptx::find_ptxas();
  if (!assembler) {
    WARN("there is no ptxas here");
    return;
  }
  const std::vector<Example> all = examples();
  std::string body;
  for (const Example& example : all) body += example.text + "\n";
  for (const PtxTarget target :
       {PtxTarget::sm_80, PtxTarget::sm_86, PtxTarget::sm_89, PtxTarget::sm_90, PtxTarget::sm_90a}) {
    int first = 0;
    const std::string text = text_for(target, body, &first);
    const auto refused = refused_lines(*assembler, target, text);
    if (!refused) {
      WARN("this ptxas does not assemble for " << ptx_target_name(target));
      continue;
    }
    for (size_t i = 0; i < all.size(); ++i) {
      INFO(all[i].text << " for " << ptx_target_name(target));
      CHECK(refused->contains(first + static_cast<int>(i)) == (target < all[i].least));
    }
  }
}

TEST_CASE("ptx targets: clusters of a kernel need a text for sm_90", "[jit][sim]") {
  for (const char* directive : {".reqnctapercluster 2", ".maxclusterrank 8", ".explicitcluster"}) {
    const auto text = [&](PtxTarget target) {
      return replaced(text_for(target, ""), ".reqntid 128", ".reqntid 128\n" + std::string(directive));
    };
    CHECK(error_of(text(PtxTarget::sm_90)) == "");
    CHECK_THAT(error_of(text(PtxTarget::sm_89)), Catch::Contains("needs sm_90, the text says .target sm_89"));
  }
}

TEST_CASE("ptx targets: a device runs the text of older targets and refuses that of newer ones", "[jit][sim]") {
  const auto load = [](const char* device, const char* target) -> std::string {
    const std::string text =
        ".version 8.0\n.target " + std::string(target) + "\n.address_size 64\n.visible .entry k()\n{\nret;\n}\n";
    KernelBinary binary;
    binary.symbol = "k", binary.stage = "ptx", binary.target = device;
    binary.code.assign(reinterpret_cast<const std::byte*>(text.data()),
                       reinterpret_cast<const std::byte*>(text.data()) + text.size());
    try {
      make_sim_device(device)->load(std::move(binary));
    } catch (const Error& error) {
      CHECK(error.code() == ErrorCode::invalid_argument);
      return error.what();
    }
    return "";
  };
  for (const char* target : {"sm_80", "sm_86", "sm_89", "sm_90", "sm_90a"}) CHECK(load("sm_90a", target) == "");
  CHECK(load("sm_80", "sm_80") == "");
  CHECK(load("sm_80", "sm_90a") ==
        "PTX line 2: .target sm_90a does not run on sim:sm_80; use sim:sm_90a, or have the text made for sm_80");
  for (const char* target : {"sm_86", "sm_89", "sm_90"})
    CHECK_THAT(load("sm_80", target), Catch::Contains("does not run on sim:sm_80"));
}

}  // namespace
}  // namespace seqtile::sim
