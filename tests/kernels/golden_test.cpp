// tests/kernels/golden_test.cpp -- the tile IR of every operation, fixed per version.
// SPDX-License-Identifier: Apache-2.0
//
// Tuning records and binaries are keyed by an operation's name and version. When a kernel's IR changes, its version
// must change: hashes.txt has both, a line for each kernel. The texts of five small kernels are there to be read.
#include <catch2/catch.hpp>

#include <algorithm>
#include <iostream>
#include <map>
#include <set>
#include <sstream>
#include <tuple>

#include <fmt/format.h>

#include "jit/base/hash.h"
#include "seqtile/builder.h"
#include "seqtile/compiler.h"
#include "seqtile/operations.h"
#include "tests/support/kernels/kernel_table.h"
#include "tests/support/references/golden.h"

namespace seqtile::testing {
namespace {

using autotune::Config;
using autotune::Fields;
using autotune::Workload;
using Text = std::string;

struct Golden {
  std::string name;
  KernelCase test_case;
  DType dtype;
  Config config;
};

Config linear_config(const char* form, int64_t mr, int64_t nr) {
  return {{"form", Text(form)}, {"block_m", 2 * mr}, {"block_n", 2 * nr}, {"mr", mr}, {"nr", nr}, {"kc", int64_t{64}}};
}

Config fused_config(const Config& schedule) {
  Config config = linear_config("outer", 14, 32);
  for (const auto& [name, value] : schedule.values()) config.set(name, value);
  return config;
}

Config backward_config(const Config& schedule) {
  Config config = fused_config(schedule);
  const Config wgrad = linear_config("outer", 6, 32);
  for (const auto& [name, value] : wgrad.values()) config.set("wgrad_" + name, value);
  return config;
}

int64_t i(int64_t value) { return value; }

std::vector<Golden> goldens_of_one_rank() {
  const Fields heads{{"heads", i(4)}, {"kv_heads", i(2)}, {"head_dim", i(64)}};
  Fields prefill = heads, decode = heads, normed_rope = heads;
  prefill.set("phase", Text("extend"));
  prefill.set("window", i(100));
  prefill.set("soft_cap", 30.0);
  decode.set("phase", Text("decode"));
  normed_rope.set("norm", i(1));
  const Config rows{{"rows", i(4)}};
  return {
      {"linear_dot", {"linear", {{"n", i(96)}, {"k", i(128)}}}, DType::f32, linear_config("dot", 4, 6)},
      {"linear_fused",
       {"linear",
        {{"n", i(96)},
         {"k", i(128)},
         {"bias", i(1)},
         {"gated", i(1)},
         {"activation", Text("silu")},
         {"residual", i(1)}}},
       DType::bf16,
       linear_config("outer", 6, 32)},
      {"linear_three",
       {"linear",
        {{"n", i(96)},
         {"n2", i(32)},
         {"n3", i(64)},
         {"k", i(128)},
         {"bias", i(1)},
         {"weight_layout", Text("packed")},
         {"panel", i(32)}}},
       DType::f16,
       linear_config("outer", 14, 32)},
      {"linear_wgrad",
       {"linear_wgrad", {{"n", i(96)}, {"k", i(128)}, {"accumulate", i(1)}, {"gradient", Text("f32")}}},
       DType::bf16,
       linear_config("outer", 6, 32)},
      {"attention_extend", {"attention_forward", prefill}, DType::bf16, {{"block_m", i(32)}, {"block_n", i(64)}}},
      {"attention_decode", {"attention_forward", decode}, DType::f32, {{"splits", i(4)}, {"block_n", i(64)}}},
      {"attention_backward", {"attention_backward", heads}, DType::bf16, {{"block", i(32)}, {"block_n", i(64)}}},
      {"rms_norm", {"rms_norm", {{"n", i(576)}, {"residual", i(1)}, {"weight_offset", 1.0}}}, DType::bf16, rows},
      {"rms_norm_backward",
       {"rms_norm_backward", {{"n", i(576)}, {"residual", i(1)}}},
       DType::bf16,
       {{"rows", i(4)}, {"programs", i(32)}}},
      {"layer_norm", {"layer_norm", {{"n", i(576)}}}, DType::f32, rows},
      {"rope", {"rope", heads}, DType::bf16, rows},
      {"rope_normed", {"rope", normed_rope}, DType::f32, rows},
      {"softmax", {"softmax", {{"n", i(576)}}}, DType::f32, rows},
      {"embedding", {"embedding", {{"vocab", i(1000)}, {"n", i(576)}, {"scale", 24.0}}}, DType::bf16, rows},
  };
}

std::vector<Golden> goldens_of_fused_products() {
  const Config moves{{"chunk_rows", i(64)}, {"push_programs", i(2)}};
  return {
      {"fused_allgather_and_linear",
       {"fused_allgather_and_linear", {{"n", i(96)}, {"n2", i(32)}, {"k", i(128)}, {"world_size", i(2)}}},
       DType::bf16,
       fused_config({{"chunk_rows", i(64)}, {"push_programs", i(1)}, {"order", Text("rotate")}})},
      {"fused_allgather_and_linear_joined",
       {"fused_allgather_and_linear", {{"n", i(96)}, {"k", i(128)}, {"world_size", i(2)}}},
       DType::bf16,
       fused_config({{"chunk_rows", i(64)}, {"push_programs", i(1)}, {"transfer", Text("join")}})},
      {"fused_linear_and_reducescatter_joined",
       {"fused_linear_and_reducescatter", {{"n", i(96)}, {"k", i(128)}, {"world_size", i(2)}}},
       DType::bf16,
       fused_config({{"chunk_rows", i(84)}, {"sum_rows", i(8)}, {"order", Text("join")}})},
      {"fused_linear_and_reducescatter",
       {"fused_linear_and_reducescatter", {{"n", i(96)}, {"k", i(128)}, {"residual", i(1)}, {"world_size", i(2)}}},
       DType::bf16,
       fused_config({{"chunk_rows", i(84)}, {"sum_rows", i(8)}})},
      {"linear_and_allreduce",
       {"linear_and_allreduce", {{"n", i(96)}, {"k", i(128)}, {"norm", i(1)}, {"world_size", i(2)}}},
       DType::bf16,
       fused_config({{"chunk_rows", i(84)}, {"sum_rows", i(8)}, {"reduction", Text("two_shot")}})},
      {"fused_alltoall_and_linear",
       {"fused_alltoall_and_linear",
        {{"heads", i(5)}, {"head_dim", i(32)}, {"n", i(96)}, {"residual", i(1)}, {"world_size", i(2)}}},
       DType::bf16,
       fused_config(moves)},
      {"fused_linear_and_alltoall",
       {"fused_linear_and_alltoall",
        {{"heads", i(6)},
         {"kv_heads", i(3)},
         {"head_dim", i(32)},
         {"k", i(128)},
         {"bias", i(1)},
         {"world_size", i(2)}}},
       DType::bf16,
       fused_config({{"chunk_rows", i(84)}})},
  };
}

std::vector<Golden> other_goldens_of_ranks() {
  Fields context_backward{{"heads", i(4)}, {"kv_heads", i(2)}, {"head_dim", i(64)}, {"world_size", i(2)}};
  context_backward.set("layout", Text("zigzag"));
  Fields context = context_backward;
  context.set("lse", i(1));
  const Config moves{{"chunk_rows", i(64)}, {"push_programs", i(2)}};
  const Fields row{{"n", i(576)}, {"world_size", i(2)}};
  return {
      {"context_attention_forward",
       {"context_attention_forward", context},
       DType::bf16,
       {{"block_m", i(32)}, {"block_n", i(64)}, {"chunk_rows", i(64)}, {"push_programs", i(1)}}},
      {"context_attention_backward",
       {"context_attention_backward", context_backward},
       DType::bf16,
       {{"block", i(32)}, {"block_n", i(64)}, {"chunk_rows", i(64)}, {"push_programs", i(1)}}},
      {"sequence_parallel_trailing_matmul_backward",
       {"sequence_parallel_trailing_matmul_backward",
        {{"n", i(96)}, {"k", i(128)}, {"accumulate", i(1)}, {"gradient", Text("f32")}, {"world_size", i(2)}}},
       DType::bf16,
       backward_config({{"chunk_rows", i(64)}, {"push_programs", i(1)}, {"order", Text("rotate")}})},
      {"sequence_parallel_leading_matmul_backward",
       {"sequence_parallel_leading_matmul_backward",
        {{"n", i(96)}, {"n2", i(32)}, {"k", i(128)}, {"world_size", i(2)}}},
       DType::bf16,
       backward_config({{"chunk_rows", i(84)}, {"push_programs", i(1)}})},
      {"sequence_parallel_leading_matmul_backward_interleaved",
       {"sequence_parallel_leading_matmul_backward", {{"n", i(96)}, {"k", i(128)}, {"world_size", i(2)}}},
       DType::bf16,
       backward_config(
           {{"chunk_rows", i(84)}, {"push_programs", i(1)}, {"order", Text("interleave")}, {"sum_rows", i(8)}})},
      {"sequence_parallel_rms_norm_backward",
       {"sequence_parallel_rms_norm_backward", row},
       DType::bf16,
       {{"rows", i(4)}, {"programs", i(32)}}},
      {"all_gather", {"all_gather", row}, DType::bf16, moves},
      {"all_gather_pulled",
       {"all_gather", {{"n", i(576)}, {"world_size", i(3)}}},
       DType::bf16,
       {{"chunk_rows", i(64)}, {"push_programs", i(2)}, {"transfer", Text("pull")}}},
      {"broadcast", {"broadcast", row}, DType::f32, moves},
      {"all_to_all", {"all_to_all", {{"heads", i(5)}, {"head_dim", i(64)}, {"world_size", i(2)}}}, DType::f16, moves},
      {"reduce_scatter", {"reduce_scatter", row}, DType::bf16, {{"chunk_rows", i(64)}, {"sum_rows", i(8)}}},
      {"all_reduce",
       {"all_reduce", row},
       DType::bf16,
       {{"chunk_rows", i(64)}, {"sum_rows", i(8)}, {"reduction", Text("one_shot")}}},
  };
}

std::vector<Golden> goldens() {
  std::vector<Golden> all = goldens_of_one_rank();
  for (const auto& more : {goldens_of_fused_products(), other_goldens_of_ranks()})
    all.insert(all.end(), more.begin(), more.end());
  // Operations that are not above: the first case of the table, as a short call has it.
  for (const CaseGroup& group : kernel_table()) {
    const KernelCase& kernel = group.cases.front().kernel;
    if (std::ranges::any_of(all, [&](const Golden& g) { return g.test_case.operation == kernel.operation; })) continue;
    const Workload workload = normalized(kernel, DType::bf16);
    all.push_back({group.name, kernel, DType::bf16,
                   library_op(kernel.operation).default_config(workload, 64, cpu_target("avx512"))});
  }
  return all;
}

}  // namespace

TEST_CASE("kernels: the tile IR of every operation is the one of its version", "[kernels][golden]") {
  static const std::set<std::string> kShown{"attention_extend", "linear_dot", "linear_fused", "rms_norm", "softmax"};
  std::set<std::string> covered;
  std::string table;
  for (const Golden& golden : goldens()) {
    const auto& op = library_op(golden.test_case.operation);
    covered.insert(op.name);
    const std::string text = ir::print(
        *autotune::build_kernel(op, normalized(golden.test_case, golden.dtype), golden.config, cpu_target("avx512")));
    table += fmt::format("{} v{} {}\n", golden.name, op.version, sha256_hex(text));
    if (kShown.contains(golden.name)) CHECK(compare_golden("kernels/" + golden.name + ".txt", text) == "");
  }
  const autotune::Registry registry = kernels::make_registry();
  for (const auto& op : registry.ops()) {
    INFO(op->name << " has no line: add it to kernel_table()");
    REQUIRE(covered.contains(op->name));
  }
  const std::string difference = compare_golden("kernels/hashes.txt", table);
  if (!difference.empty()) std::cout << difference << "\n";  // in one line, to be copied
  INFO(
      "a new operation needs only the cp. The IR of any other operation whose line differs has changed, or its default "
      "configuration has: raise its OpDef::version for the former; `seqtile compile OPERATION --emit tile` of this "
      "commit and the one before shows how");
  CHECK(difference == "");
}

// The test replaces a run of the code on machines without the instructions.
TEST_CASE("kernels: bf16 products use the instructions of the target, whatever this machine has", "[kernels][golden]") {
  const auto text_of = [](const char* name, const std::vector<std::string>& mnemonics,
                          const std::vector<std::tuple<const char*, const char*, int64_t, int64_t>>& cases) {
    const Target target = cpu_target(name);
    std::string text;
    for (const auto& [layout, form, mr, nr] : cases) {
      const KernelCase test_case{"linear", {{"n", int64_t{192}}, {"k", int64_t{128}}, {"weight_layout", Text(layout)}}};
      const auto function = autotune::build_kernel(library_op("linear"), normalized(test_case, DType::bf16),
                                                   linear_config(form, mr, nr), target);
      std::map<std::string, int> counts;
      compile(*function, target, [&](std::string_view stage, std::string_view assembly) {
        if (stage != "asm") return;
        std::istringstream lines{std::string(assembly)};
        for (std::string mnemonic, rest; lines >> mnemonic && std::getline(lines, rest);)
          if (std::ranges::find(mnemonics, mnemonic) != mnemonics.end())
            ++counts[mnemonic + (rest.find("zmm") != rest.npos ? " zmm" : "")];
      });
      for (const auto& [mnemonic, count] : counts) text += fmt::format("{}: {} {}\n", form, count, mnemonic);
    }
    return text;
  };
  CHECK(compare_golden("asm/linear_bf16.txt",
                       text_of("avx512bf16", {"vdpbf16ps", "vcvtneps2bf16"},
                               {{"plain", "dot", 4, 6}, {"plain", "outer", 8, 48}, {"plain", "transposed", 64, 6}})) ==
        "");
  const std::vector<std::string> matrix{"ldtilecfg", "tilezero", "tileloadd", "tdpbf16ps", "tilestored", "tilerelease"};
  CHECK(compare_golden(
            "asm/linear_amx.txt",
            text_of("amx", matrix,
                    {{"plain", "matrix", 32, 32}, {"plain", "matrix", 16, 48}, {"transposed", "matrix", 32, 32}})) ==
        "");
}

}  // namespace seqtile::testing
