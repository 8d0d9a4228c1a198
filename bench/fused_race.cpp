// bench/fused_race.cpp -- see fused_race.h.
// SPDX-License-Identifier: Apache-2.0
#include "bench/fused_race.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "autotune/call/call_values.h"
#include "bench/stats.h"
#include "kernels/seqpar/prepare.h"
#include "seqtile/seqpar.h"

namespace seqtile::bench {

FusedContestant::FusedContestant(const Environment& environment, Fabric& fabric, const autotune::Workload& workload,
                                 int64_t capacity)
    : handle_(environment.prepare(workload)) {
  waiting_ =
      std::make_unique<Channel>(fabric, kernels::seqpar::channel_options(environment.registry(), {workload}, capacity));
  ChannelOptions preset = waiting_->options();
  preset.awaits_peers = false;
  preset_ = std::make_unique<Channel>(fabric, preset);
}

void FusedContestant::run(bool waits, std::vector<Tensor> tensors, int64_t length) {
  for (const Tensor& tensor : (waits ? waiting_ : preset_)->tensors()) tensors.push_back(tensor);
  handle_.handle(tensors, length, std::array<int64_t, 1>{});
}

void FusedContestant::check() const { waiting_->check(); }

Tensor rows_of(const Operand& operand, int64_t first, int64_t count) {
  Tensor tensor = operand.tensor();
  tensor.data = static_cast<std::byte*>(tensor.data) + first * tensor.strides[0] * dtype_bytes(tensor.dtype);
  tensor.sizes[0] = count;
  return tensor;
}

void give_rows(const RankContext& context, const Tensor& own, const std::function<void*(size_t rank)>& place) {
  for (size_t rank = 0; rank < kRaceRanks; ++rank)
    if (void* there = place(rank); there != own.data)
      std::memcpy(there, own.data, static_cast<size_t>(own.num_elements() * dtype_bytes(own.dtype)));
  context.barrier.arrive_and_wait();
}

double largest_error(const Operand& result, const Operand& expected) {
  autotune::Difference worst;
  for (int64_t row = 0; row < result.tensor().sizes[0]; ++row)
    worst.add(autotune::compare(read_row(result.tensor(), row), read_row(expected.tensor(), row), {1, 1}));
  return worst.tolerances;
}

void compare_methods(std::vector<Result>& results) {
  const auto find = [&](const char* method) -> const Result* {
    const auto found = std::ranges::find(results, method, &Result::implementation);
    return found == results.end() || found->seconds.empty() ? nullptr : &*found;
  };
  const auto place = std::ranges::find(results, "fused", &Result::implementation);
  if (place == results.end() || place->seconds.empty()) return;
  Result& fused = *place;
  const auto compare = [&](const char* counter, const Result* a, const Result* b) {
    if (a && b) fused.counters[counter] = median_ratio(*a, *b);
  };
  const Result *gemm = find("compute_lower_bound"), *comm = find("comms_lower_bound");
  compare("fused_over_gemm", &fused, gemm);
  compare("nowait_over_gemm", find("fused_nowait"), gemm);
  compare("unfused_over_fused", find("unfused"), &fused);
  compare("gloo_over_fused", find("gloo"), &fused);
  compare("f32_over_fused", find("fused_f32"), &fused);
  if (!gemm || !comm) return;
  const double t_fused = median(fused.seconds), t_gemm = median(gemm->seconds), t_comm = median(comm->seconds);
  fused.counters["T_fused_ms"] = t_fused * 1e3;
  fused.counters["T_gemm_ms"] = t_gemm * 1e3;
  fused.counters["T_comm_ms"] = t_comm * 1e3;
  fused.counters["T_ideal_ms"] = std::max(t_gemm, t_comm) * 1e3;
  fused.counters["overlap_efficiency"] = 1 - (t_fused - t_gemm) / t_comm;
}

}  // namespace seqtile::bench
