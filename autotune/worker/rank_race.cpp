// autotune/worker/rank_race.cpp -- see rank_race.h.
// SPDX-License-Identifier: Apache-2.0
#include "autotune/worker/rank_race.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <string>

#include "autotune/call/measured_call.h"
#include "autotune/worker/rank_group.h"
#include "jit/fabric/core/wait.h"
#include "seqtile/fabric.h"

namespace seqtile::autotune {
namespace {

constexpr double kSampleUs = 150;  // a sample repeats short launches up to this time
constexpr int kMostReps = 64;
constexpr double kAlignUs = 10000;  // longest wait for ranks between the gather and the start

double now_us() {
  using namespace std::chrono;
  return duration<double, std::micro>(steady_clock::now().time_since_epoch()).count();
}

RankCall call_of(const RankRace& race, int rank) {
  RankCall call = race.op.on_rank(race.workload, rank, race.plan.length);
  call.channel.timeout = std::chrono::nanoseconds(static_cast<int64_t>(race.timeout_s * 1e9));
  return call;
}

/// One rank's part of the race. `arrivals[r]`: number of starts that rank r has reached.
class RankRunner {
 public:
  RankRunner(const RankRace& race, Fabric& fabric, std::span<double> arrivals, volatile int64_t* current)
      : race_(race),
        fabric_(fabric),
        arrivals_(arrivals),
        current_(fabric.rank() == 0 ? current : nullptr),
        call_(call_of(race, fabric.rank())),
        channel_(fabric, call_.channel),
        regions_(fabric.device(), race.cold, fabric.world_size()),
        operands_(race.op, race.workload, fabric.device(), regions_) {
    operands_.bind(race.plan.length, call_, channel_.tensors());
    for (const LoadedCandidate* candidate : race.candidates) calls_.push_back(operands_.make_call(*candidate));
  }

  /// `us`: mean microseconds by candidate and round; 0 for rounds that are not made.
  void run(std::span<double> us) {
    for (size_t i = 0; i < calls_.size(); ++i) reps_.push_back(count_reps(i));
    const double start = now_us();
    const auto rounds = static_cast<size_t>(race_.plan.max_rounds);
    for (size_t round = 0; round < rounds; ++round) {
      const bool is_over = round >= 3 && now_us() - start > race_.plan.limit_s * 1e6;
      if (first_of_all(is_over ? 1 : 0) > 0) break;
      for (size_t i = 0; i < calls_.size(); ++i) us[i * rounds + round] = sample(i, reps_[i]);
    }
    fabric_.all_gather("");  // no rank frees its memory before all peers have finished
  }

 private:
  /// Mean microseconds of a launch on this rank.
  double sample(size_t i, int reps) {
    if (current_) *current_ = static_cast<int64_t>(i);
    align();
    const double start = now_us();
    for (int rep = 0; rep < reps; ++rep) {
      operands_.rotate(calls_[i]);
      fabric_.device().launch(*calls_[i].candidate->kernel, calls_[i].grid, calls_[i].call.block());
    }
    const double us = now_us() - start;
    channel_.check();
    return us / reps;
  }

  /// Starts all ranks together. A rank that came early to the gather may still sleep when it ends, so that a second
  /// wait follows, which spins.
  void align() {
    fabric_.all_gather("");
    const auto rank = static_cast<size_t>(fabric_.rank());
    const double count = arrivals_[rank] + 1, start = now_us();
    std::atomic_ref(arrivals_[rank]).store(count);
    const auto has_come = [&](double& theirs) { return std::atomic_ref(theirs).load() >= count; };
    fabric::wait_until([&] { return std::ranges::all_of(arrivals_, has_come) || now_us() - start > kAlignUs; },
                       nullptr);
  }

  /// Launches a sample, equal on all ranks. The first launch warms the code up.
  int count_reps(size_t i) {
    sample(i, 1);
    const double slowest = slowest_of_all(sample(i, 1));
    return std::clamp(static_cast<int>(kSampleUs / std::max(0.1, slowest)), 1, kMostReps);
  }

  double first_of_all(double mine) { return std::stod(fabric_.all_gather(std::to_string(mine)).front()); }
  double slowest_of_all(double mine) {
    double slowest = 0;
    for (const std::string& text : fabric_.all_gather(std::to_string(mine)))
      slowest = std::max(slowest, std::stod(text));
    return slowest;
  }

  const RankRace& race_;
  Fabric& fabric_;
  std::span<double> arrivals_;
  volatile int64_t* current_;
  const RankCall call_;
  Channel channel_;
  OperandRegions regions_;
  Operands operands_;
  std::vector<MeasuredCall> calls_;
  std::vector<int> reps_;
};

}  // namespace

std::vector<Series> race_ranks(const RankRace& race, volatile int64_t* current) {
  const RankCall first = call_of(race, 0);
  const auto rounds = static_cast<size_t>(race.plan.max_rounds);
  const size_t of_rank = race.candidates.size() * rounds;
  const auto world_size = static_cast<size_t>(first.world_size);
  const SharedNumbers us(of_rank * world_size), arrivals(world_size);
  run_rank_group(first.fabric, first.world_size, race.workload.threads, [&](Fabric& fabric) {
    RankRunner(race, fabric, arrivals.values(), current)
        .run(us.values().subspan(static_cast<size_t>(fabric.rank()) * of_rank, of_rank));
  });
  *current = -1;
  std::vector<Series> series(race.candidates.size());
  for (size_t i = 0; i < series.size(); ++i)
    for (size_t round = 0; round < rounds; ++round) {
      double slowest = 0;
      for (size_t rank = 0; rank < world_size; ++rank)
        slowest = std::max(slowest, us.values()[rank * of_rank + i * rounds + round]);
      if (slowest > 0) series[i].us.push_back(slowest);
    }
  return series;
}

}  // namespace seqtile::autotune
