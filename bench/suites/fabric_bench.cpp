// bench/suites/fabric_bench.cpp -- the overhead of a fused operation: a call of no rows, alone and on eight ranks.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <barrier>
#include <chrono>
#include <cstdlib>
#include <exception>
#include <functional>
#include <memory>
#include <thread>

#include "bench/stats.h"
#include "bench/suites.h"
#include "seqtile/error.h"
#include "seqtile/ops/collectives.h"
#include "seqtile/seqpar.h"

namespace seqtile::bench {
namespace {

using Clock = std::chrono::steady_clock;
using kernels::seqpar::AllGather;

constexpr int kRanks = 8, kCalls = 4000, kWarmUps = 400;
constexpr int64_t kColumns = 64;

Result with_quantiles(std::string implementation, std::vector<double> seconds) {
  Result result;
  result.implementation = std::move(implementation);
  result.calls = static_cast<int64_t>(seconds.size());
  result.counters = {{"p50_us", median(seconds) * 1e6}, {"p99_us", quantile(seconds, 0.99) * 1e6}};
  result.seconds = std::move(seconds);
  return result;
}

std::vector<double> timed_calls(const std::function<void()>& call) {
  for (int i = 0; i < kWarmUps; ++i) call();
  std::vector<double> seconds;
  for (int i = 0; i < kCalls; ++i) {
    const auto start = Clock::now();
    call();
    seconds.push_back(std::chrono::duration<double>(Clock::now() - start).count());
  }
  return seconds;
}

/// Runs `body` on a thread for each rank. An error of a rank ends the program, because the other ranks wait for it.
void on_ranks(const std::function<void(Fabric&)>& body) {
  const auto fabrics = make_thread_fabric(kRanks);
  std::vector<std::thread> threads;
  for (const auto& fabric : fabrics)
    threads.emplace_back([&] {
      try {
        body(*fabric);
      } catch (const std::exception& error) {
        fmt::print(stderr, "seqtile bench: {}\n", error.what());
        std::_Exit(3);
      }
    });
  for (std::thread& thread : threads) thread.join();
}

/// A rank's all-gather of no rows. Without waiting, the kernel treats the peers' flags as set.
class EmptyCall {
 public:
  EmptyCall(const Environment& environment, Fabric& fabric, bool waits) {
    const AllGather op{.n = kColumns};
    EngineOptions options;
    options.threads = 1;
    options.cache = environment.options().cache;
    options.artifacts = environment.artifacts_path();
    options.policy = MissPolicy::fallback;
    engine_ = Engine::open(options, environment.registry(), fabric);
    channel_ = std::make_unique<Channel>(fabric, ChannelOptions{.capacity = kRanks, .awaits_peers = waits});
    handle_ = std::make_unique<kernels::seqpar::FusedHandle<AllGather>>(*engine_, op, *channel_);
    x_ = y_ = make_tensor(&place_, DType::f32, {0, kColumns});
  }
  void operator()() const { (*handle_)({x_, y_}, 0); }
  /// Errors: as Channel::check(); internal if some call did not launch.
  void check(uint64_t calls) const {
    if (channel_->epoch() != calls) throw Error(ErrorCode::internal, fmt::format("{} launches", channel_->epoch()));
    channel_->check();
  }

 private:
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<Channel> channel_;
  std::unique_ptr<kernels::seqpar::FusedHandle<AllGather>> handle_;
  Tensor x_, y_;
  float place_ = 0;
};

/// One rank calls and the others do nothing: the time is the host's part of a call and a kernel of a few programs.
Result measure_call(const Environment& environment) {
  std::vector<double> seconds;
  std::barrier<> measured(kRanks);
  on_ranks([&](Fabric& fabric) {
    const EmptyCall call(environment, fabric, false);
    measured.arrive_and_wait();
    if (fabric.rank() == 0) {
      seconds = timed_calls([&] { call(); });
      call.check(kWarmUps + kCalls);
    }
    measured.arrive_and_wait();
  });
  return with_quantiles("seqtile", std::move(seconds));
}

/// All ranks call. When a call ends, each rank has seen every other rank.
Result measure_barrier(const Environment& environment) {
  std::vector<double> seconds;
  on_ranks([&](Fabric& fabric) {
    const EmptyCall call(environment, fabric, true);
    auto of_rank = timed_calls([&] { call(); });
    call.check(kWarmUps + kCalls);
    if (fabric.rank() == 0) seconds = std::move(of_rank);
    fabric.all_gather("");
  });
  return with_quantiles("seqtile", std::move(seconds));
}

Result measure_std_barrier() {
  std::vector<double> seconds;
  std::barrier<> barrier(kRanks);
  on_ranks([&](Fabric& fabric) {
    auto of_rank = timed_calls([&] { barrier.arrive_and_wait(); });
    if (fabric.rank() == 0) seconds = std::move(of_rank);
  });
  return with_quantiles("std_barrier", std::move(seconds));
}

Case fabric_case(const char* operation, std::vector<std::string> implementations,
                 std::function<Result(const std::string&)> measure) {
  Case item;
  item.operation = operation;
  item.dtype = "f32";
  item.shape = fmt::format("empty_p{}", kRanks);
  item.implementations = std::move(implementations);
  item.run = [measure](const Case&, const std::vector<std::string>& selected, const RunOptions&) {
    std::vector<Result> results;
    for (const std::string& implementation : selected) results.push_back(measure(implementation));
    return results;
  };
  return item;
}

}  // namespace

void add_fabric_cases(std::vector<Case>& cases, Environment& environment) {
  cases.push_back(
      fabric_case("fused_call", {"seqtile"}, [&](const std::string&) { return measure_call(environment); }));
  cases.push_back(fabric_case("barrier", {"seqtile", "std_barrier"}, [&](const std::string& implementation) {
    return implementation == "seqtile" ? measure_barrier(environment) : measure_std_barrier();
  }));
}

}  // namespace seqtile::bench
