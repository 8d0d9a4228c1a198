// bench/suites/attention_bench.cpp -- causal prefill of one sequence (32 heads of 128, 8 KV heads) against PyTorch.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "bench/op_arena.h"
#include "bench/suites.h"

namespace seqtile::bench {
namespace {

constexpr int64_t kHeads = 32, kKvHeads = 8, kHeadDim = 128;
constexpr int64_t kLengths[] = {128, 512, 1024, 2048, 4096};

std::unique_ptr<Contestant> enter_torch(OpArena& arena, const std::string&) {
  return arena.environment().torch().enter({"attention_forward",
                                            arena.workload().threads,
                                            {{"heads", kHeads}, {"kv_heads", kKvHeads}},
                                            {&arena.operand(0, "q"), &arena.operand(0, "k"), &arena.operand(0, "v")},
                                            &arena.operand(0, "out"),
                                            arena.copies()});
}

}  // namespace

void add_attention_cases(std::vector<Case>& cases, Environment& environment) {
  const std::vector<std::string> peers =
      environment.has_torch() ? std::vector<std::string>{"torch"} : std::vector<std::string>{};
  for (DType dtype : {DType::f32, DType::bf16}) {
    for (int64_t length : kLengths) {
      for (int threads : environment.options().threads) {
        const autotune::Workload workload{
            "attention_forward", dtype, threads, {{"heads", kHeads}, {"kv_heads", kKvHeads}, {"head_dim", kHeadDim}}};
        const std::string shape = fmt::format("l{}_h{}_kv{}_d{}", length, kHeads, kKvHeads, kHeadDim);
        cases.push_back(make_op_case(environment, workload, length, shape, peers, enter_torch));
        cases.back().group = "prefill";
      }
    }
  }
}

}  // namespace seqtile::bench
