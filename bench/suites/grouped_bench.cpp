// bench/suites/grouped_bench.cpp -- the linear layers of experts in one launch, against one tuned call for each expert.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "bench/op_arena.h"
#include "bench/suites.h"
#include "seqtile/kernel.h"
#include "seqtile/ops/linear.h"

namespace seqtile::bench {
namespace {

constexpr int64_t kExperts = 64;
/// [n, k] of an expert: small ones, and those of Granite 3.0 1B, Qwen3 30B and OLMoE.
constexpr std::pair<int64_t, int64_t> kWeights[] = {{128, 128},  {256, 256},  {256, 512},
                                                    {512, 1024}, {768, 2048}, {1024, 2048}};
constexpr int64_t kLengths[] = {16, 256, 2048};

/// The tensors of one expert's call.
struct ExpertCall {
  std::array<Tensor, 3> tensors;
  int64_t rows;
};

Tensor part_of(const Tensor& tensor, int64_t first_row, int64_t rows) {
  Tensor part = tensor;
  part.data = static_cast<char*>(tensor.data) + first_row * tensor.strides[0] * dtype_bytes(tensor.dtype);
  part.sizes[0] = rows;
  return part;
}

std::vector<ExpertCall> calls_of(const OpArena& arena, int copy) {
  const Tensor &x = arena.tensor(copy, "x"), &w = arena.tensor(copy, "w"), &y = arena.tensor(copy, "y");
  const Tensor& offsets = arena.tensor(0, "offsets");
  std::vector<ExpertCall> calls;
  for (int64_t e = 0; e < kExperts; ++e) {
    const int64_t first = read_index(offsets, e), rows = read_index(offsets, e + 1) - first;
    if (!rows) continue;
    const Tensor weight = make_tensor(part_of(w, e, 1).data, w.dtype, {w.sizes[1], w.sizes[2]});
    calls.push_back({{part_of(x, first, rows), weight, part_of(y, first, rows)}, rows});
  }
  return calls;
}

/// A call of linear for each expert that has rows, with the tuned configuration of its number of rows.
std::unique_ptr<Contestant> enter_loop(OpArena& arena, const std::string&) {
  const Tensor& w = arena.tensor(0, "w");
  autotune::Workload workload = kernels::Linear{.n = w.sizes[1], .k = w.sizes[2], .dtype = w.dtype}.workload();
  workload.threads = arena.workload().threads;
  std::vector<std::vector<ExpertCall>> copies;
  for (int copy = 0; copy < arena.copies(); ++copy) copies.push_back(calls_of(arena, copy));
  auto tuned = std::make_shared<TunedHandle>();
  for (const ExpertCall& call : copies[0]) *tuned = arena.environment().prepare_tuned(workload, call.rows);
  return make_contestant([tuned, copies](int copy) {
    for (const ExpertCall& call : copies[copy]) tuned->handle(call.tensors, call.rows);
  });
}

}  // namespace

void add_grouped_cases(std::vector<Case>& cases, Environment& environment) {
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const int64_t m : kLengths)
      for (const auto& [n, k] : kWeights)
        for (const int threads : environment.options().threads) {
          autotune::Workload workload =
              kernels::GroupedLinear{.experts = kExperts, .n = n, .k = k, .dtype = dtype}.workload();
          workload.threads = threads;
          cases.push_back(make_op_case(environment, workload, m, fmt::format("m{}_e{}_n{}_k{}", m, kExperts, n, k),
                                       {"linear_loop"}, enter_loop));
        }
}

}  // namespace seqtile::bench
