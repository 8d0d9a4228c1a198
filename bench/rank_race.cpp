// bench/rank_race.cpp -- see rank_race.h.
// SPDX-License-Identifier: Apache-2.0
#include "bench/rank_race.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstdlib>
#include <exception>
#include <nlohmann/json.hpp>
#include <random>
#include <thread>

#include "bench/stats.h"

namespace seqtile::bench {
namespace {

using Clock = std::chrono::steady_clock;

class Track {
 public:
  Track(const RankRace& race, const std::vector<std::string>& methods, int rounds, Child* gloo)
      : race_(race), methods_(methods), rounds_(rounds), gloo_(gloo), seconds_(kRaceRanks) {
    for (auto& of_rank : seconds_) of_rank.resize(methods.size());
    if (gloo)
      gloo->ask({{"command", "prepare"},
                 {"dtype", std::string(dtype_name(race.dtype))},
                 {"m", race.m},
                 {"n", race.n},
                 {"k", race.k}});
  }

  void run() {
    auto fabrics = make_thread_fabric(kRaceRanks);
    std::vector<std::thread> threads;
    for (const auto& fabric : fabrics)
      threads.emplace_back([&] {
        try {
          run_rank(*fabric);
        } catch (const std::exception& error) {
          // The other rank waits at the barrier, so a rank that cannot go on ends the program.
          fmt::print(stderr, "seqtile bench: {}\n", error.what());
          std::_Exit(3);
        }
      });
    for (std::thread& thread : threads) thread.join();
  }

  std::vector<Result> results() const {
    const double difference = *std::ranges::max_element(differences_);
    std::vector<Result> results;
    for (size_t method = 0; method < methods_.size(); ++method) {
      Result result;
      result.implementation = methods_[method];
      result.calls = rounds_;
      result.max_error = difference;
      for (int round = 0; round < rounds_; ++round) {
        double slowest = 0;
        for (const auto& of_rank : seconds_) slowest = std::max(slowest, of_rank[method][static_cast<size_t>(round)]);
        result.seconds.push_back(slowest);
      }
      if (difference > race_.difference_limit) {
        result.failure = fmt::format("a result differs from the reference by {:.3g}, at most {:.3g} is expected",
                                     difference, race_.difference_limit);
        result.seconds.clear();
      }
      results.push_back(std::move(result));
    }
    return results;
  }

 private:
  void run_rank(Fabric& fabric) {
    const auto rank = static_cast<size_t>(fabric.rank());
    const auto racer = race_.enter({fabric, racers_, barrier_});
    racers_[rank] = racer.get();
    barrier_.arrive_and_wait();
    racer->make_reference();
    for (const std::string& method : methods_) {
      if (!racer->is_checked(method)) continue;  // without waiting there is no result
      racer->poison();
      barrier_.arrive_and_wait();
      racer->run(method);
      racer->check();
      barrier_.arrive_and_wait();
      differences_[rank] = std::max(differences_[rank], racer->difference());
    }
    std::mt19937 random(11);  // the same order on all ranks
    std::vector<size_t> order(methods_.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = i;
    for (int round = -1; round < rounds_; ++round) {
      std::shuffle(order.begin(), order.end(), random);
      for (const size_t method : order) {
        const double seconds = time(*racer, methods_[method], rank);
        if (round >= 0) seconds_[rank][method].push_back(seconds);
      }
    }
    racer->check();
    barrier_.arrive_and_wait();
  }

  double time(Racer& racer, const std::string& method, size_t rank) {
    barrier_.arrive_and_wait();
    if (method == "gloo") {
      double seconds = 0;
      if (rank == 0) seconds = gloo_->ask({{"command", "run"}, {"operation", race_.operation}}).at("seconds");
      barrier_.arrive_and_wait();  // this thread sleeps: gloo's processes need both cores
      return seconds;
    }
    const auto start = Clock::now();
    racer.run(method);
    return std::chrono::duration<double>(Clock::now() - start).count();
  }

  const RankRace& race_;
  const std::vector<std::string>& methods_;
  const int rounds_;
  Child* gloo_;
  std::vector<Racer*> racers_ = std::vector<Racer*>(kRaceRanks);
  std::barrier<> barrier_{kRaceRanks};
  std::vector<std::vector<std::vector<double>>> seconds_;              ///< [rank][method][round]
  std::vector<double> differences_ = std::vector<double>(kRaceRanks);  ///< by rank
};

}  // namespace

std::vector<Result> race_ranks(const RankRace& race, const std::vector<std::string>& methods, int rounds, Child* gloo) {
  Track track(race, methods, rounds, gloo);
  track.run();
  return track.results();
}

namespace {

#if defined(__x86_64__)
#define SEQTILE_FOR_ANY_VECTORS __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define SEQTILE_FOR_ANY_VECTORS
#endif

SEQTILE_FOR_ANY_VECTORS void add_f32(const float* a, const float* b, float* to, int64_t count) {
  for (int64_t i = 0; i < count; ++i) to[i] = a[i] + b[i];
}

/// Has no branch for NaN, so that the compiler can vectorise it.
SEQTILE_FOR_ANY_VECTORS void add_bf16(const uint16_t* a, const uint16_t* b, uint16_t* to, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    const uint32_t x = uint32_t{a[i]} << 16, y = uint32_t{b[i]} << 16;
    const auto sum = std::bit_cast<uint32_t>(std::bit_cast<float>(x) + std::bit_cast<float>(y));
    to[i] = static_cast<uint16_t>((sum + 0x7fff + (sum >> 16 & 1)) >> 16);
  }
}

template <class T>
const T* as(const std::byte* bytes) {
  return reinterpret_cast<const T*>(bytes);
}

}  // namespace

void add_elements(DType dtype, const std::byte* a, const std::byte* b, std::byte* to, int64_t count) {
  if (dtype == DType::f32) add_f32(as<float>(a), as<float>(b), reinterpret_cast<float*>(to), count);
  else add_bf16(as<uint16_t>(a), as<uint16_t>(b), reinterpret_cast<uint16_t*>(to), count);
}

double median_ratio(const Result& a, const Result& b) {
  std::vector<double> ratios;
  for (size_t i = 0; i < a.seconds.size() && i < b.seconds.size(); ++i) ratios.push_back(a.seconds[i] / b.seconds[i]);
  return ratios.empty() ? 0 : median(ratios);
}

}  // namespace seqtile::bench
