// tests/kernels/spill_test.cpp -- every configuration that tuning may choose keeps its values in registers.
// SPDX-License-Identifier: Apache-2.0
#include <atomic>
#include <catch2/catch.hpp>
#include <mutex>
#include <thread>

#include "jit/compiler.h"
#include "jit/device.h"
#include "jit/error.h"
#include "kernels/registry.h"

#include <fmt/format.h>

namespace seqtile::testing {
namespace {

struct KernelCase {
  std::string operation;
  autotune::Fields fields;
};

struct Candidate {
  const autotune::OpDef* op;
  autotune::Workload workload;
  autotune::Config config;
};

/// Every configuration of the default list of the case at short, middling and long lengths, once each.
void add_candidates(const KernelCase& test_case, DType dtype, const Target& target, std::vector<Candidate>& all) {
  static const autotune::Registry registry = kernels::make_registry();
  const autotune::OpDef& op = registry.find(test_case.operation);
  const autotune::Workload workload = op.normalize({test_case.operation, dtype, 1, test_case.fields});
  std::vector<autotune::Config> seen;
  for (const int64_t length : {1, 64, 4096})
    for (const autotune::Config& config : op.config_space(workload, length, target).enumerate())
      if (std::find(seen.begin(), seen.end(), config) == seen.end()) seen.push_back(config);
  for (const autotune::Config& config : seen) all.push_back({&op, workload, config});
}

/// What is wrong with the kernel, or nothing; counts those that were assembled.
std::string problem_of(const Candidate& candidate, const Target& target, std::atomic<size_t>& num_assembled) {
  constexpr int kEvenShare = 168;  // of 384 threads: what setmaxnreg takes from and gives to
  const std::string name =
      fmt::format("{} {} {}", candidate.op->name, candidate.workload.json(), candidate.config.json());
  try {
    const auto function = autotune::build_kernel(*candidate.op, candidate.workload, candidate.config, target);
    bool moves_registers = false;
    const KernelBinary binary = compile(*function, target, [&](std::string_view stage, std::string_view text) {
      if (stage == "ptx") moves_registers = text.find("setmaxnreg") != std::string_view::npos;
    });
    if (!binary.resources) return {};  // an assembler that does not know the GPU
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

/// Compiles all of them on all cores; the problems, one a line.
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

void check_no_spills(const std::vector<KernelCase>& cases) {
  for (const char* name : {"sm_80", "sm_90a"}) {
    const Target target = assembled(gpu_target(name));
    if (target.cubin_arch.empty()) {
      WARN("skipped: this machine has no ptxas");
      return;
    }
    std::vector<Candidate> candidates;
    for (const KernelCase& test_case : cases)
      for (const DType dtype : {DType::bf16, DType::f32})  // f16 has bf16's instructions and registers
        add_candidates(test_case, dtype, target, candidates);
    INFO(name << ", " << candidates.size() << " configurations");
    std::atomic<size_t> num_assembled{0};
    CHECK(problems_of(candidates, target, num_assembled) == "");
    if (num_assembled == 0) WARN("skipped: this machine's ptxas does not know " << name);
    else CHECK(num_assembled == candidates.size());
  }
}

KernelCase attention(int64_t head_dim, const char* phase) {
  return {"attention_forward",
          {{"heads", int64_t{32}}, {"kv_heads", int64_t{8}}, {"head_dim", head_dim}, {"phase", std::string(phase)}}};
}

}  // namespace

TEST_CASE("spills: none in row kernels of Llama-3-8B's shapes", "[kernels][ptxas][slow]") {
  check_no_spills({{"rms_norm", {{"n", int64_t{4096}}}},
                   {"rms_norm", {{"n", int64_t{4096}}, {"residual", int64_t{1}}}},
                   {"layer_norm", {{"n", int64_t{4096}}}},
                   {"softmax", {{"n", int64_t{4096}}}},
                   {"silu_and_mul", {{"n", int64_t{14336}}}},
                   {"silu_and_mul", {{"n", int64_t{28672}}}},
                   {"silu_and_mul_backward", {{"n", int64_t{14336}}}},
                   {"rms_norm_backward", {{"n", int64_t{4096}}, {"residual", int64_t{1}}}},
                   {"rms_norm", {{"n", int64_t{16384}}}},
                   {"embedding", {{"vocab", int64_t{128256}}, {"n", int64_t{4096}}}},
                   {"rope", {{"heads", int64_t{32}}, {"kv_heads", int64_t{8}}, {"head_dim", int64_t{128}}}}});
}

TEST_CASE("spills: none in linear of Llama-3-8B's shapes", "[kernels][ptxas][slow]") {
  check_no_spills(
      {{"linear", {{"n", int64_t{4096}}, {"n2", int64_t{1024}}, {"n3", int64_t{1024}}, {"k", int64_t{4096}}}},
       {"linear", {{"n", int64_t{4096}}, {"k", int64_t{14336}}, {"residual", int64_t{1}}}},
       {"linear",
        {{"n", int64_t{14336}}, {"k", int64_t{4096}}, {"gated", int64_t{1}}, {"activation", std::string("silu")}}}});
}

TEST_CASE("spills: none in attention", "[kernels][ptxas][slow]") {
  for (const char* phase : {"prefill", "decode"})  // extend is prefill from another row on
    check_no_spills({attention(64, phase), attention(128, phase)});
}

}  // namespace seqtile::testing
