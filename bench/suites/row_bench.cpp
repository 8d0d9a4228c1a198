// bench/suites/row_bench.cpp -- row kernels on operands in memory, against the memory bandwidth and PyTorch.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "bench/op_arena.h"
#include "bench/suites.h"

namespace seqtile::bench {
namespace {

constexpr int64_t kColumns = 4096;
/// Size of x on every machine. Calls rotate through copies that together exceed the caches.
constexpr int64_t kTensorBytes = int64_t{64} << 20;

std::unique_ptr<Contestant> enter_torch(OpArena& arena, const std::string&) {
  const std::string& operation = arena.workload().operation;
  std::vector<const Operand*> inputs = {&arena.operand(0, "x")};
  if (operation == "rms_norm") inputs.push_back(&arena.operand(0, "weight"));
  return arena.environment().torch().enter(
      {operation, arena.workload().threads, {}, inputs, &arena.operand(0, "y"), arena.copies()});
}

}  // namespace

void add_row_cases(std::vector<Case>& cases, Environment& environment) {
  const std::vector<std::string> peers =
      environment.has_torch() ? std::vector<std::string>{"torch"} : std::vector<std::string>{};
  for (const char* operation : {"rms_norm", "softmax", "act_and_mul"}) {
    for (DType dtype : {DType::f32, DType::bf16}) {
      const int64_t rows = kTensorBytes / (kColumns * dtype_bytes(dtype));
      for (int threads : environment.options().threads) {
        const autotune::Workload workload{operation, dtype, threads, {{"n", kColumns}}};
        cases.push_back(
            make_op_case(environment, workload, rows, fmt::format("m{}_n{}", rows, kColumns), peers, enter_torch));
        cases.back().work.flops = 0;  // memory bounds row kernels: rates in GB/s
        cases.back().group = "memory";
      }
    }
  }
}

}  // namespace seqtile::bench
