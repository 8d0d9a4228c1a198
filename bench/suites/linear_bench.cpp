// bench/suites/linear_bench.cpp -- y = x w^T at the sizes of an 8B model, against BLAS, oneDNN and PyTorch.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "bench/op_arena.h"
#include "bench/peers/onednn.h"
#include "bench/suites.h"
#include "seqtile/error.h"
#include "seqtile/ops/linear.h"
#include "seqtile/target.h"

namespace seqtile::bench {
namespace {

constexpr std::pair<int64_t, int64_t> kWeights[] = {{4096, 4096}, {6144, 4096}, {14336, 4096}, {4096, 14336}};
constexpr int64_t kLengths[] = {1, 7, 16, 37, 64, 128, 257, 512, 1024, 1537, 2048};

std::unique_ptr<Contestant> enter_blas(OpArena& arena, Blas& blas) {
  blas.set_threads(arena.workload().threads);
  if (arena.workload().dtype == DType::f32) {
    return make_contestant([&arena, &blas](int copy) {
      blas.linear_f32(arena.tensor(copy, "x"), arena.tensor(copy, "w"), arena.tensor(copy, "y"));
    });
  }
  // The library's bf16 product writes f32. Only the verified call pays for the conversion.
  const Tensor& y = arena.tensor(0, "y");
  auto wide = std::make_shared<Operand>(DType::f32, std::vector<int64_t>{y.sizes[0], y.sizes[1]});
  const auto run = [&arena, &blas, wide](int copy) {
    if (!blas.linear_bf16(arena.tensor(copy, "x"), arena.tensor(copy, "w"), wide->tensor())) {
      throw Error(ErrorCode::unsupported, blas.version() + " has no bf16 product");
    }
  };
  const auto fetch = [&arena, wide](int copy) {
    auto* y = static_cast<uint16_t*>(arena.tensor(copy, "y").data);
    for (int64_t i = 0; i < wide->tensor().num_elements(); ++i) y[i] = f32_to_bf16(wide->as<float>()[i]);
  };
  return make_contestant(run, fetch);
}

std::unique_ptr<Contestant> enter_onednn(OpArena& arena, bool packed) {
  std::shared_ptr<OnednnLinear> linear = make_onednn_linear(arena.tensor(0, "x"), arena.tensor(0, "w"),
                                                            arena.tensor(0, "y"), arena.workload().threads, packed);
  if (packed) {
    for (int copy = 0; copy < arena.copies(); ++copy) linear->pack(copy, arena.tensor(copy, "w"));
    return make_contestant(
        [&arena, linear](int copy) { linear->run_packed(copy, arena.tensor(copy, "x"), arena.tensor(copy, "y")); });
  }
  return make_contestant([&arena, linear](int copy) {
    linear->run(arena.tensor(copy, "x"), arena.tensor(copy, "w"), arena.tensor(copy, "y"));
  });
}

/// Our implementation with weights packed in advance. It is an operation of its own, with its own records.
std::unique_ptr<Contestant> enter_ours_packed(OpArena& arena) {
  const Tensor &w = arena.tensor(0, "w"), &x = arena.tensor(0, "x");
  kernels::Linear linear{.n = w.sizes[0],
                         .k = w.sizes[1],
                         .weight_layout = kernels::WeightLayout::packed,
                         .panel = kernels::default_panel(host_target()),
                         .dtype = w.dtype};
  autotune::Workload workload = linear.workload();
  workload.threads = arena.workload().threads;
  auto tuned = std::make_shared<TunedHandle>(arena.environment().prepare_tuned(workload, x.sizes[0]));
  auto weights = std::make_shared<std::vector<Operand>>();
  const int64_t panels = (linear.n + linear.panel - 1) / linear.panel;
  for (int copy = 0; copy < arena.copies(); ++copy) {
    weights->emplace_back(w.dtype, std::vector<int64_t>{panels, linear.k, linear.panel});
    kernels::pack_linear_weight(arena.tensor(copy, "w"), weights->back().tensor());
  }
  return make_contestant([&arena, tuned, weights](int copy) {
    const Tensor tensors[] = {arena.tensor(copy, "x"), (*weights)[copy].tensor(), arena.tensor(copy, "y")};
    tuned->handle(tensors, tensors[0].sizes[0]);
  });
}

std::unique_ptr<Contestant> enter_other(OpArena& arena, const std::string& implementation) {
  if (implementation == "seqtile_packed") return enter_ours_packed(arena);
  Environment& environment = arena.environment();
  if (implementation == "openblas") return enter_blas(arena, environment.openblas());
  if (implementation == "mkl") return enter_blas(arena, environment.mkl());
  if (implementation == "torch") {
    const std::vector<const Operand*> inputs = {&arena.operand(0, "x"), &arena.operand(0, "w")};
    return environment.torch().enter(
        {"linear", arena.workload().threads, {}, inputs, &arena.operand(0, "y"), arena.copies()});
  }
  return enter_onednn(arena, implementation == "onednn_packed");
}

std::vector<std::string> others(const Environment& environment, DType dtype) {
  std::vector<std::string> names = {"seqtile_packed"};
  if (dtype == DType::f32 && environment.has_openblas()) names.push_back("openblas");
  if (environment.has_mkl()) names.push_back("mkl");
  if (environment.has_onednn()) names.insert(names.end(), {"onednn", "onednn_packed"});
  if (environment.has_torch()) names.push_back("torch");
  return names;
}

}  // namespace

void add_linear_cases(std::vector<Case>& cases, Environment& environment) {
  for (DType dtype : {DType::f32, DType::bf16}) {
    for (int64_t m : kLengths) {
      for (const auto& [n, k] : kWeights) {
        for (int threads : environment.options().threads) {
          const autotune::Workload workload{"linear", dtype, threads, {{"n", n}, {"k", k}}};
          cases.push_back(make_op_case(environment, workload, m, fmt::format("m{}_n{}_k{}", m, n, k),
                                       others(environment, dtype), enter_other));
          cases.back().group = m == 1 ? "m1" : m <= 128 ? "m7..128" : "m257..2048";
        }
      }
    }
  }
}

}  // namespace seqtile::bench
