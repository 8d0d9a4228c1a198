// tests/kernels/gpu_text_test.cpp -- instructions in the PTX of the library's kernels.
// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>

#include "seqtile/compiler.h"
#include "tests/support/kernels/kernel_cases.h"
#include "tests/support/references/golden.h"

namespace seqtile::testing {
namespace {

const KernelCase kNorm{"rms_norm", {{"n", int64_t{576}}, {"residual", int64_t{1}}}};
const KernelCase kLayerNorm{"layer_norm", {{"n", int64_t{897}}}};
const KernelCase kSoftmax{"softmax", {{"n", int64_t{2304}}}};
const KernelCase kSilu{"act_and_mul", {{"n", int64_t{896}}}};
const KernelCase kEmbedding{"embedding", {{"vocab", int64_t{499}}, {"n", int64_t{576}}}};
const KernelCase kRope{"rope", {{"heads", int64_t{4}}, {"kv_heads", int64_t{1}}, {"head_dim", int64_t{64}}}};
const KernelCase kLinear{"linear", {{"n", int64_t{200}}, {"k", int64_t{200}}, {"residual", int64_t{1}}}};

KernelCase attention(const char* phase) {
  return {"attention_forward",
          {{"heads", int64_t{2}}, {"kv_heads", int64_t{1}}, {"head_dim", int64_t{64}}, {"phase", std::string(phase)}}};
}

/// PTX of one configuration, or of the default one if `config` has no parameters.
std::string ptx_of(const KernelCase& test_case, DType dtype, int64_t length, const char* target,
                   autotune::Config config = {}) {
  const autotune::OpDef& op = library_op(test_case.operation);
  const autotune::Workload workload = normalized(test_case, dtype, 1);
  const Target gpu = gpu_target(target);
  if (config.values().empty()) config = op.default_config(workload, length, gpu);
  const KernelBinary binary = compile(*autotune::build_kernel(op, workload, config, gpu), gpu);
  return {reinterpret_cast<const char*>(binary.code.data()), binary.code.size()};
}

size_t count(const std::string& text, const std::string& part) {
  size_t found = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

}  // namespace

TEST_CASE("gpu text: keeping accesses in order costs the library's kernels no barrier", "[kernels][nvptx]") {
  // The barriers that reductions and products through shared memory need.
  const std::pair<KernelCase, size_t> most[] = {{kNorm, 2},
                                                {kLayerNorm, 4},
                                                {kSoftmax, 4},
                                                {kSilu, 0},
                                                {kEmbedding, 0},
                                                {kRope, 0},
                                                {kLinear, 2},
                                                {attention("prefill"), 18},
                                                {attention("decode"), 19}};
  for (const auto& [test_case, barriers] : most)
    for (const DType dtype : {DType::f32, DType::bf16})
      for (const int64_t length : {1, 64, 1000}) {
        INFO(test_case.operation << " " << dtype_name(dtype) << " " << length);
        CHECK(count(ptx_of(test_case, dtype, length, "sm_80"), "bar.sync") <= barriers);
      }
}

TEST_CASE("gpu text: f32 products are three of tf32, or one where it is asked for", "[kernels][nvptx]") {
  KernelCase product{"linear", {{"n", int64_t{64}}, {"k", int64_t{64}}}};
  const autotune::Config config =
      library_op("linear").default_config(normalized(product, DType::f32, 1), 64, gpu_target("sm_80"));
  const size_t three = count(ptx_of(product, DType::f32, 64, "sm_80", config), "mma.sync");
  product.fields.set("precision", std::string("tf32"));
  CHECK(three > 0);
  CHECK(3 * count(ptx_of(product, DType::f32, 64, "sm_80", config), "mma.sync") == three);
}

TEST_CASE("gpu text: every signal and wait on an mbarrier says its order and scope", "[kernels][nvptx]") {
  // Each of `groups` groups of streams has a barrier for arrived data and one for read data. `releases` places release
  // the read data.
  const auto check_mbarriers = [](const std::string& text, const std::string& scope, size_t groups, size_t releases) {
    CHECK(count(text, "mbarrier.arrive.expect_tx.release.cta.shared::cta") == groups);
    CHECK(count(text, "mbarrier.arrive.release." + scope + ".shared::" + scope) == releases);
    CHECK(count(text, "mbarrier.try_wait.parity.acquire." + scope + ".shared::cta") == 2 * groups);
    CHECK(count(text, "mbarrier.arrive") == groups + releases);
    CHECK(count(text, "mbarrier.try_wait") + count(text, "mbarrier.test_wait") == 2 * groups);
  };
  autotune::Config tile{{"block_m", int64_t{128}},
                        {"block_n", int64_t{64}},
                        {"block_k", int64_t{64}},
                        {"num_warps", int64_t{8}},
                        {"num_stages", int64_t{3}}};
  for (const int64_t cluster : {1, 2}) {
    INFO("cluster " << cluster);
    tile.set("cluster", cluster);
    // Signals of a block's own copies stay in the block; blocks of a cluster release each other's stages.
    check_mbarriers(ptx_of({"linear", {{"n", 256}, {"k", 256}}}, DType::bf16, 1024, "sm_90a", tile),
                    cluster > 1 ? "cluster" : "cta", 1, 1);
  }
  // Two groups, keys and values; three places release them.
  const autotune::Config overlapped{
      {"block_m", int64_t{128}}, {"block_n", int64_t{128}}, {"num_warps", int64_t{8}}, {"num_stages", int64_t{2}}};
  check_mbarriers(ptx_of(attention("prefill"), DType::bf16, 1024, "sm_90a", overlapped), "cta", 2, 3);
}

TEST_CASE("gpu text: ranks signal and wait at the system's scope", "[kernels][nvptx]") {
  const KernelCase gathered{"fused_allgather_and_linear", {{"n", 256}, {"k", 256}, {"world_size", 2}}};
  for (const char* target : {"sm_80", "sm_90a"}) {
    INFO(target);
    const std::string text = ptx_of(gathered, DType::bf16, 1024, target);
    CHECK(count(text, "st.release.sys.global.b64") == 3);
    CHECK(count(text, "ld.acquire.sys.global.u64") == 2);
    CHECK(count(text, ".release.sys") + count(text, ".acquire.sys") == 5);
    CHECK(count(text, ".relaxed.sys") == count(text, "ld.relaxed.sys.global."));  // the polls of a waiting program
    CHECK(count(text, "atom.acq_rel.gpu.global.add.u32") == 1);                   // finds the last program of a rank
    for (const char* weak : {".volatile", "fence", "membar"}) CHECK(count(text, weak) == 0);
  }
}

// Tensor cores cut sums off, so none of their results may start the next eight products.
TEST_CASE("gpu text: additions of f32 sum what tensor cores give", "[kernels][nvptx]") {
  const std::string text = ptx_of({"linear", {{"n", int64_t{64}}, {"k", int64_t{64}}}}, DType::f32, 64, "sm_80");
  const size_t products = count(text, "mma.sync.aligned.m16n8k8.row.col.f32.tf32");
  CHECK(products > 0);
  CHECK(4 * products / 3 == count(text, "add.f32"));
}

TEST_CASE("gpu text: rows of every length that models have find a configuration", "[kernels][nvptx]") {
  const std::pair<KernelCase, const char*> rows[] = {{{"act_and_mul", {{"n", int64_t{28672}}}}, "sm_80"},
                                                     {{"rms_norm", {{"n", int64_t{16384}}}}, "sm_90a"},
                                                     {{"softmax", {{"n", int64_t{65536}}}}, "sm_90a"}};
  for (const auto& [test_case, target] : rows) CHECK_NOTHROW(ptx_of(test_case, DType::bf16, 64, target));
}

TEST_CASE("gpu text: heads that fit no block are refused with what they need", "[kernels][nvptx]") {
  for (const char* phase : {"prefill", "decode"}) {
    KernelCase wide = attention(phase);
    wide.fields.set("head_dim", int64_t{512});
    CHECK_THROWS_WITH(ptx_of(wide, DType::f32, 64, "sm_80"), Catch::Contains("head_dim 512 in f32 fits the registers"));
    CHECK_NOTHROW(ptx_of(wide, DType::bf16, 64, "sm_80"));
  }
}

TEST_CASE("gpu text: kernels are the code that they were", "[kernels][nvptx]") {
  const auto difference = [](const char* name, const std::string& text) {
    return compare_golden("ptx/" + std::string(name) + ".txt", normalized_ptx(text));
  };
  const KernelCase product{"linear", {{"n", int64_t{256}}, {"k", int64_t{128}}}};
  const autotune::Config tile{{"block_m", int64_t{64}},
                              {"block_n", int64_t{64}},
                              {"block_k", int64_t{64}},
                              {"num_warps", int64_t{4}},
                              {"num_stages", int64_t{2}}};
  CHECK(difference("rms_norm_bf16", ptx_of(kNorm, DType::bf16, 64, "sm_80")) == "");
  CHECK(difference("linear_bf16_sm_80", ptx_of(product, DType::bf16, 64, "sm_80", tile)) == "");
  CHECK(difference("linear_bf16_sm_90a", ptx_of(product, DType::bf16, 64, "sm_90a", tile)) == "");
  CHECK(difference("attention_bf16", ptx_of(attention("prefill"), DType::bf16, 64, "sm_80")) == "");
  const autotune::Config overlapped{
      {"block_m", int64_t{64}}, {"block_n", int64_t{64}}, {"num_warps", int64_t{4}}, {"num_stages", int64_t{2}}};
  CHECK(difference("attention_bf16_sm_90a", ptx_of(attention("prefill"), DType::bf16, 64, "sm_90a", overlapped)) == "");
}

TEST_CASE("gpu text: names and comments are no code", "[kernels][nvptx]") {
  const std::string one =
      ".version 7.4\n.reg .b32 %r<9>;\n$L__BB0_7: // loop\n\tadd.s32 \t%r3, %r8, %r3;\n@%p2 bra $L__BB0_7;\n";
  const std::string two = ".reg .b32 %r<4>;\n$L__BB1_2:\nadd.s32 %r1, %r2, %r1; // again\n@%p1 bra $L__BB1_2;";
  CHECK(normalized_ptx(one) == "L0:\nadd.s32 %r0, %r1, %r0;\n@%p0 bra L0;\n");
  CHECK(normalized_ptx(two) == normalized_ptx(one));
  CHECK(normalized_ptx("mov.u32 %r5, %tid.x;\n{.reg .pred p; bra W12;}") ==
        "mov.u32 %r0, %tid.x;\n{.reg .pred p; bra L0;}\n");
}

}  // namespace seqtile::testing
