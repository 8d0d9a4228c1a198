// bench/harness.cpp -- verification and interleaved rounds.
// SPDX-License-Identifier: Apache-2.0
#include "bench/harness.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <exception>
#include <thread>

#include "bench/peers/openmp.h"
#include "bench/probe.h"
#include "bench/stats.h"

namespace seqtile::bench {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

struct Entrant {
  std::unique_ptr<Contestant> contestant;
  Result result;
  int calls_per_round = 1;
  bool is_slow = false;  ///< one call outlasts a round, so rounds have no warm-up call
  int next_copy = 0;
};

/// Threads of other libraries spin on other cores after a call. This ends OpenMP's threads. Child stops those of other
/// processes. OpenBLAS's threads sleep after some milliseconds, for which this function waits.
void let_spinners_sleep() {
  end_openmp_threads();
  std::this_thread::sleep_for(std::chrono::milliseconds(10));
}

/// Sets up an implementation, verifies it on a poisoned copy and estimates its calls in a round.
Entrant qualify(Arena& arena, const std::string& implementation, const RunOptions& options) {
  Entrant entrant;
  entrant.result.implementation = implementation;
  let_spinners_sleep();
  try {
    entrant.contestant = arena.enter(implementation);
    arena.poison(0);
    entrant.contestant->run(0);
    entrant.contestant->fetch(0);
    entrant.result.max_error = arena.max_error(0);
    const double limit = arena.error_limit(implementation);
    if (!(entrant.result.max_error <= limit)) {
      entrant.result.failure = "wrong result: error of " + std::to_string(entrant.result.max_error) +
                               " tolerances, limit " + std::to_string(limit);
    }
  } catch (const std::exception& error) {
    entrant.result.failure = error.what();
  }
  if (!entrant.result.failure.empty()) {
    entrant.contestant.reset();
    return entrant;
  }
  const double estimate = median(entrant.contestant->burst(1, 2, arena.copies()));
  entrant.is_slow = estimate > options.round_s;
  entrant.calls_per_round = std::clamp(static_cast<int>(options.round_s / std::max(estimate, 1e-9)), 1, 200);
  return entrant;
}

void time_round(Entrant& entrant, int copies) {
  if (!entrant.is_slow) {
    entrant.contestant->burst(entrant.next_copy, std::max(1, entrant.calls_per_round / 4), copies);
  }
  const auto seconds = entrant.contestant->burst(entrant.next_copy, entrant.calls_per_round, copies);
  entrant.next_copy = (entrant.next_copy + entrant.calls_per_round) % copies;
  entrant.result.seconds.push_back(median(seconds));
  entrant.result.calls += entrant.calls_per_round;
}

void probe(const Case& shape) {
  probe_peak_gflops(shape.work.peak_dtype, shape.threads);
  probe_bandwidth_gbs(shape.work.bytes_read, shape.work.bytes_written, shape.threads);
}

class FunctionContestant : public Contestant {
 public:
  FunctionContestant(std::function<void(int)> run, std::function<void(int)> fetch)
      : run_(std::move(run)), fetch_(std::move(fetch)) {}
  void run(int copy) override { run_(copy); }
  void fetch(int copy) override {
    if (fetch_) fetch_(copy);
  }

 private:
  std::function<void(int)> run_, fetch_;
};

}  // namespace

std::unique_ptr<Contestant> make_contestant(std::function<void(int)> run, std::function<void(int)> fetch) {
  return std::make_unique<FunctionContestant>(std::move(run), std::move(fetch));
}

std::vector<double> Contestant::burst(int first, int calls, int copies) {
  std::vector<double> seconds;
  seconds.reserve(calls);
  for (int i = 0; i < calls; ++i) {
    const auto start = Clock::now();
    run((first + i) % copies);
    seconds.push_back(seconds_since(start));
  }
  return seconds;
}

std::string tuner_difference(double raced_us, double tuned_us, double share) {
  constexpr double kLimit = 1.3;
  const double ratio = raced_us / tuned_us;
  if (ratio <= kLimit && ratio >= share / kLimit) return {};
  return fmt::format("{:.2f} times the tuner's {:.1f} us: run the case again, or tune it again on a quiet machine",
                     ratio, tuned_us);
}

std::vector<Result> race(Arena& arena, const Case& shape, const std::vector<std::string>& selected,
                         const RunOptions& options) {
  std::vector<Entrant> entrants;
  for (const auto& implementation : selected) entrants.push_back(qualify(arena, implementation, options));
  const size_t count = entrants.size();
  for (int round = 0; round < options.rounds; ++round) {
    if (round % 5 == 0) probe(shape);
    for (size_t i = 0; i < count; ++i) {
      Entrant& entrant = entrants[(i + round) % count];
      if (!entrant.contestant) continue;
      let_spinners_sleep();
      time_round(entrant, arena.copies());
    }
  }
  std::vector<Result> results;
  for (auto& entrant : entrants) results.push_back(std::move(entrant.result));
  return results;
}

}  // namespace seqtile::bench
