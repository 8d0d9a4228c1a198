// tests/kernels/spill_test.cpp -- every configuration that tuning may choose keeps its values in registers.
// SPDX-License-Identifier: Apache-2.0
//
// Assembling all configurations takes more than an hour of a core: slow tests do so, the other tests take a sample.
#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <mutex>
#include <thread>

#include "seqtile/compiler.h"
#include "seqtile/device.h"
#include "seqtile/error.h"
#include "tests/support/kernels/kernel_cases.h"

#include <fmt/format.h>

namespace seqtile::testing {
namespace {

/// A block's keys and values of 128 columns take 256 registers as operands of tf32x3: the kernel spills up to 60 bytes.
bool is_known_to_spill(const KernelCase& test_case, DType dtype) {
  return test_case.operation == "context_attention_backward" && dtype == DType::f32 &&
         test_case.fields.get_int("head_dim") >= 128;
}

/// The sample of a case in one dtype on one target: the default at a long length, and one other configuration.
enum class Share : uint8_t { sample, whole };

struct Candidate {
  const autotune::OpDef* op;
  autotune::Workload workload;
  autotune::Config config;
};

/// The configurations in the case's default list at short, middling and long lengths, once each.
std::vector<autotune::Config> all_configs(const autotune::OpDef& op, const autotune::Workload& w,
                                          const Target& target) {
  std::vector<autotune::Config> seen;
  for (const int64_t length : {1, 64, 4096}) {
    for (const autotune::Config& config : op.config_space(w, length, target).enumerate())
      if (std::ranges::find(seen, config) == seen.end()) seen.push_back(config);
    REQUIRE(std::ranges::find(seen, op.default_config(w, length, target)) != seen.end());
  }
  return seen;
}

void add_candidates(const KernelCase& test_case, DType dtype, const Target& target, Share share,
                    std::vector<Candidate>& all) {
  const autotune::OpDef& op = library_op(test_case.operation);
  const autotune::Workload workload = normalized(test_case, dtype, 1);
  std::vector<autotune::Config> configs = all_configs(op, workload, target);
  if (share == Share::sample) {
    configs = {op.default_config(workload, 4096, target), configs[configs.size() / 2]};
    if (configs[0] == configs[1]) configs.pop_back();
  }
  for (const autotune::Config& config : configs) all.push_back({&op, workload, config});
}

/// The kernel's problem, or an empty text. Counts the assembled kernels.
std::string problem_of(const Candidate& candidate, const Target& target, std::atomic<size_t>& num_assembled) {
  constexpr int kEvenShare = 168;  // registers of each of 384 threads before setmaxnreg moves some
  const std::string name =
      fmt::format("{} {} {}", candidate.op->name, candidate.workload.json(), candidate.config.json());
  try {
    const auto function = autotune::build_kernel(*candidate.op, candidate.workload, candidate.config, target);
    bool moves_registers = false;
    const KernelBinary binary = compile(*function, target, [&](std::string_view stage, std::string_view text) {
      if (stage == "ptx") moves_registers = text.find("setmaxnreg") != std::string_view::npos;
    });
    if (!binary.resources) return {};  // the assembler does not know the GPU
    ++num_assembled;
    const ResourceUse& use = *binary.resources;
    if (moves_registers && use.registers != kEvenShare)
      return fmt::format("{}: {} registers at the entry, setmaxnreg counts on {}", name, use.registers, kEvenShare);
    if (use.spill_store_bytes + use.spill_load_bytes > 0)
      return fmt::format("{}: {} registers, {} B of spill stores, {} B of spill loads", name, use.registers,
                         use.spill_store_bytes, use.spill_load_bytes);
    if (!use.warnings.empty()) return name + ": " + use.warnings.front();
    return {};
  } catch (const Error& error) {
    return name + ": " + error.what();
  }
}

/// Compiles all candidates on all cores. Returns the problems, one a line.
std::string problems_of(const std::vector<Candidate>& candidates, const Target& target,
                        std::atomic<size_t>& num_assembled) {
  std::atomic<size_t> next{0};
  std::mutex mutex;
  std::string problems;
  const auto work = [&] {
    for (size_t i; (i = next.fetch_add(1)) < candidates.size();) {
      const std::string problem = problem_of(candidates[i], target, num_assembled);
      const std::lock_guard lock(mutex);
      if (!problem.empty()) problems += problem + "\n";
    }
  };
  std::vector<std::jthread> threads;
  for (int i = 0; i < cores_available(); ++i) threads.emplace_back(work);
  threads.clear();
  return problems;
}

void check_candidates(const std::vector<Candidate>& candidates, const Target& target) {
  INFO(target.name << ", " << candidates.size() << " configurations");
  std::atomic<size_t> num_assembled{0};
  CHECK(problems_of(candidates, target, num_assembled) == "");
  if (num_assembled == 0) WARN("skipped: this machine's ptxas does not know " << target.name);
  else CHECK(num_assembled == candidates.size());
}

void check_no_spills(const std::vector<KernelCase>& cases, Share share = Share::sample) {
  for (const char* name : {"sm_80", "sm_90a"}) {
    const Target target = assembled(gpu_target(name));
    if (target.cubin_arch.empty()) {
      WARN("skipped: this machine has no ptxas");
      return;
    }
    std::vector<Candidate> candidates;
    constexpr DType kDTypes[] = {DType::bf16, DType::f32};  // f16 has bf16's instructions and registers: see its sample
    size_t next = target.has_wgmma ? 4 : 0;  // the sample is every fifth case; each target begins with another one
    for (const KernelCase& test_case : cases)
      for (const DType dtype : kDTypes)
        if (!is_known_to_spill(test_case, dtype) && (share == Share::whole || next++ % 5 == 0))
          add_candidates(test_case, dtype, target, share, candidates);
    REQUIRE_FALSE(candidates.empty());
    check_candidates(candidates, target);
  }
}

KernelCase attention(int64_t head_dim, const char* phase) {
  return {"attention_forward",
          {{"heads", int64_t{32}}, {"kv_heads", int64_t{8}}, {"head_dim", head_dim}, {"phase", std::string(phase)}}};
}

/// The operation on one of two ranks.
KernelCase of_rank(const char* operation, autotune::Fields fields) {
  fields.set("world_size", int64_t{2});
  return {operation, std::move(fields)};
}

using Cases = std::vector<KernelCase>;

/// Row kernels at Llama-3-8B's shapes.
Cases row_kernels() {
  return {{"rms_norm", {{"n", int64_t{4096}}}},
          {"rms_norm", {{"n", int64_t{4096}}, {"residual", int64_t{1}}}},
          {"layer_norm", {{"n", int64_t{4096}}}},
          {"softmax", {{"n", int64_t{4096}}}},
          {"act_and_mul", {{"n", int64_t{14336}}}},
          {"act_and_mul", {{"n", int64_t{28672}}}},
          {"act_and_mul_backward", {{"n", int64_t{14336}}}},
          {"act_and_mul_backward", {{"n", int64_t{14337}}}},
          {"rms_norm_backward", {{"n", int64_t{4096}}, {"residual", int64_t{1}}}},
          {"rms_norm", {{"n", int64_t{16384}}}},
          {"embedding", {{"vocab", int64_t{128256}}, {"n", int64_t{4096}}}},
          {"rope", {{"heads", int64_t{32}}, {"kv_heads", int64_t{8}}, {"head_dim", int64_t{128}}}}};
}

Cases linear_layers() {
  return {{"linear", {{"n", int64_t{4096}}, {"n2", int64_t{1024}}, {"n3", int64_t{1024}}, {"k", int64_t{4096}}}},
          {"linear", {{"n", int64_t{4096}}, {"k", int64_t{14336}}, {"residual", int64_t{1}}}},
          {"linear",
           {{"n", int64_t{14336}}, {"k", int64_t{4096}}, {"gated", int64_t{1}}, {"activation", std::string("silu")}}}};
}

Cases attention() {
  Cases cases;
  for (const char* phase : {"prefill", "decode"})  // extend is prefill from another row on
    for (const int64_t head_dim : {64, 128}) cases.push_back(attention(head_dim, phase));
  return cases;
}

Cases gradients() {
  Cases cases{
      {"linear_wgrad", {{"n", int64_t{4096}}, {"k", int64_t{4096}}}},
      {"linear_wgrad",
       {{"n", int64_t{14336}}, {"k", int64_t{4096}}, {"accumulate", int64_t{1}}, {"gradient", std::string("f32")}}}};
  for (const int64_t head_dim : {64, 128})
    cases.push_back({"attention_backward", {{"heads", int64_t{32}}, {"kv_heads", int64_t{8}}, {"head_dim", head_dim}}});
  return cases;
}

Cases collectives() {
  Cases cases;
  for (const char* operation : {"all_gather", "reduce_scatter", "all_reduce", "broadcast"})
    cases.push_back(of_rank(operation, {{"n", int64_t{4096}}}));
  for (const char* direction : {"to_heads", "to_sequence"})
    cases.push_back(of_rank(
        "all_to_all", {{"heads", int64_t{32}}, {"head_dim", int64_t{128}}, {"direction", std::string(direction)}}));
  cases.push_back(of_rank("sequence_parallel_rms_norm_backward", {{"n", int64_t{4096}}, {"residual", int64_t{1}}}));
  return cases;
}

Cases attention_over_ranks() {
  Cases cases;
  for (const int64_t head_dim : {64, 128})
    for (const char* layout : {"contiguous", "zigzag"}) {
      autotune::Fields fields{
          {"heads", int64_t{32}}, {"kv_heads", int64_t{8}}, {"head_dim", head_dim}, {"layout", std::string(layout)}};
      cases.push_back(of_rank("context_attention_backward", fields));
      fields.set("lse", int64_t{1});
      cases.push_back(of_rank("context_attention_forward", fields));
    }
  return cases;
}

Cases products_of_gathered_rows() {
  const char* gather = "fused_allgather_and_linear";
  return {
      of_rank(gather, {{"n", int64_t{2048}}, {"n2", int64_t{512}}, {"n3", int64_t{512}}, {"k", int64_t{4096}}}),
      of_rank(gather,
              {{"n", int64_t{7168}}, {"k", int64_t{4096}}, {"gated", int64_t{1}}, {"activation", std::string("silu")}}),
      of_rank("fused_alltoall_and_linear",
              {{"heads", int64_t{32}}, {"head_dim", int64_t{128}}, {"n", int64_t{4096}}, {"residual", int64_t{1}}}),
      of_rank("fused_linear_and_alltoall",
              {{"heads", int64_t{32}}, {"kv_heads", int64_t{8}}, {"head_dim", int64_t{128}}, {"k", int64_t{4096}}})};
}

Cases products_summed_over_ranks() {
  const autotune::Fields down{{"n", int64_t{4096}}, {"k", int64_t{7168}}, {"residual", int64_t{1}}};
  const autotune::Fields output{
      {"n", int64_t{4096}}, {"k", int64_t{2048}}, {"transport", std::string("bf16")}, {"norm", int64_t{1}}};
  return {of_rank("fused_linear_and_reducescatter", down), of_rank("fused_linear_and_reducescatter", output),
          of_rank("linear_and_allreduce", down)};
}

Cases backward_products() {
  return {of_rank("sequence_parallel_trailing_matmul_backward", {{"n", int64_t{4096}}, {"k", int64_t{7168}}}),
          of_rank("sequence_parallel_leading_matmul_backward", {{"n", int64_t{2048}},
                                                                {"n2", int64_t{512}},
                                                                {"n3", int64_t{512}},
                                                                {"k", int64_t{4096}},
                                                                {"accumulate", int64_t{1}},
                                                                {"gradient", std::string("f32")}})};
}

}  // namespace

TEST_CASE("spills: none in a sample of configurations", "[kernels][ptxas]") {
  for (const Cases& cases : {row_kernels(), linear_layers(), attention(), gradients()}) check_no_spills(cases);
}

TEST_CASE("spills: none in defaults of products and attention in f16", "[kernels][ptxas]") {
  for (const char* name : {"sm_80", "sm_90a"}) {
    const Target target = assembled(gpu_target(name));
    if (target.cubin_arch.empty()) {
      WARN("skipped: this machine has no ptxas");
      return;
    }
    std::vector<Candidate> candidates;
    for (const KernelCase& test_case : {linear_layers().front(), attention(128, "prefill")}) {
      const autotune::Workload workload = normalized(test_case, DType::f16, 1);
      const autotune::OpDef& op = library_op(test_case.operation);
      candidates.push_back({&op, workload, op.default_config(workload, 4096, target)});
    }
    check_candidates(candidates, target);
  }
}

TEST_CASE("spills: none in a sample of configurations over ranks", "[seqpar][ptxas]") {
  for (const Cases& cases : {collectives(), attention_over_ranks(), products_of_gathered_rows(),
                             products_summed_over_ranks(), backward_products()})
    check_no_spills(cases);
}

TEST_CASE("spills: none in any configuration of row kernels", "[ptxas][slow]") {
  check_no_spills(row_kernels(), Share::whole);
}

TEST_CASE("spills: none in any configuration of linear", "[ptxas][slow]") {
  check_no_spills(linear_layers(), Share::whole);
}

TEST_CASE("spills: none in any configuration of attention", "[ptxas][slow]") {
  check_no_spills(attention(), Share::whole);
}

TEST_CASE("spills: none in any configuration of gradients", "[ptxas][slow]") {
  check_no_spills(gradients(), Share::whole);
}

TEST_CASE("spills: none in any configuration of collectives", "[ptxas][slow]") {
  check_no_spills(collectives(), Share::whole);
}

TEST_CASE("spills: none in any configuration of attention over ranks", "[ptxas][slow]") {
  check_no_spills(attention_over_ranks(), Share::whole);
}

TEST_CASE("spills: none in any configuration of products of gathered rows", "[ptxas][slow]") {
  check_no_spills(products_of_gathered_rows(), Share::whole);
}

TEST_CASE("spills: none in any configuration of products summed over ranks", "[ptxas][slow]") {
  check_no_spills(products_summed_over_ranks(), Share::whole);
}

TEST_CASE("spills: none in any configuration of backward products", "[ptxas][slow]") {
  check_no_spills(backward_products(), Share::whole);
}

}  // namespace seqtile::testing
