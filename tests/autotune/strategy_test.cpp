// tests/autotune/strategy_test.cpp -- strategies on recorded trials: no clock, no process.
// SPDX-License-Identifier: Apache-2.0
#include "autotune/strategies/strategy.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <map>
#include <set>

using namespace seqtile;
using namespace seqtile::autotune;

namespace {

/// A space of 160 configurations with recorded times relative to the default; some fail.
struct Recording {
  std::vector<Config> ranked;
  std::vector<std::optional<double>> times;
  size_t best = 0;

  explicit Recording(double model_error) {
    std::vector<std::pair<double, Config>> order;
    std::map<std::string, std::optional<double>> recorded;
    int number = 0;
    for (const int64_t m : {1, 2, 4, 8, 16})
      for (const int64_t n : {16, 32, 48, 64})
        for (const int64_t k : {32, 64, 128, 256})
          for (const char* form : {"dot", "outer"}) {
            const Config config{{"m", m}, {"n", n}, {"k", k}, {"form", std::string(form)}};
            const double time = 0.5 + 0.1 * std::abs(std::log2(m) - 2) + 0.004 * static_cast<double>(std::abs(n - 48)) +
                                0.05 * std::abs(std::log2(k) - 7) + (form[0] == 'd' ? 0.2 : 0);
            const bool fails = ++number % 17 == 0;
            recorded[config.json()] = fails ? std::nullopt : std::optional(time);
            order.emplace_back(time + model_error * ((number * 7919) % 100) / 100.0, config);
          }
    std::stable_sort(order.begin(), order.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    for (const auto& [predicted, config] : order) {
      ranked.push_back(config);
      times.push_back(recorded[config.json()]);
      if (times.back() && (!times[best] || *times.back() < *times[best])) best = ranked.size() - 1;
    }
  }
};

struct Outcome {
  std::vector<size_t> asked;
  std::vector<int> rounds;
  double best_time = 1e9;
};

Outcome search(Strategy& strategy, const Recording& recording) {
  Outcome outcome;
  while (true) {
    const Batch batch = strategy.ask();
    if (batch.candidates.empty()) return outcome;
    REQUIRE(outcome.rounds.size() < 100);
    outcome.rounds.push_back(batch.rounds);
    for (const size_t i : batch.candidates) {
      REQUIRE(i < recording.ranked.size());
      outcome.asked.push_back(i);
      strategy.tell(i, recording.times[i]);
      if (recording.times[i]) outcome.best_time = std::min(outcome.best_time, *recording.times[i]);
    }
  }
}

}  // namespace

TEST_CASE("strategy exhaustive: asks for every configuration once and finds the best", "[autotune][strategy]") {
  const Recording recording(1.0);
  const auto outcome = search(*make_strategy("exhaustive", recording.ranked, 1), recording);
  CHECK(outcome.asked.size() == 160);
  CHECK(std::set<size_t>(outcome.asked.begin(), outcome.asked.end()).size() == 160);
  CHECK(outcome.best_time == *recording.times[recording.best]);
}

TEST_CASE("strategy topk: the model's first, two of every form among them, and one other", "[autotune][strategy]") {
  const Recording recording(0.1);
  const auto outcome = search(*make_strategy("topk", recording.ranked, 1), recording);
  REQUIRE(outcome.asked.size() == 9);
  CHECK(outcome.rounds.size() == 1);
  for (size_t i = 0; i < 6; ++i) CHECK(outcome.asked[i] == i);
  std::map<std::string, int> all, asked;
  for (const Config& config : recording.ranked) ++all[config.get_string("form")];
  for (size_t i = 0; i < 8; ++i) ++asked[recording.ranked[outcome.asked[i]].get_string("form")];
  for (const auto& [form, count] : all) CHECK(asked[form] >= std::min(count, 2));
  CHECK(std::set<size_t>(outcome.asked.begin(), outcome.asked.end()).size() == 9);
  CHECK(outcome.best_time <= 1.1 * *recording.times[recording.best]);
  std::set<size_t> drawn;
  for (int seed = 0; seed < 50; ++seed)
    drawn.insert(search(*make_strategy("topk", recording.ranked, seed), recording).asked[8]);
  CHECK(drawn.size() > 30);
}

TEST_CASE("strategy halving: fewer candidates for more rounds, and a good one at the end", "[autotune][strategy]") {
  const Recording recording(0.4);
  const auto outcome = search(*make_strategy("halving", recording.ranked, 1), recording);
  REQUIRE(outcome.rounds.size() >= 3);
  CHECK(outcome.rounds.front() == 3);
  CHECK(std::is_sorted(outcome.rounds.begin(), outcome.rounds.end()));
  double best_of_first = 1e9;
  for (size_t i = 0; i < 32; ++i)
    if (recording.times[i]) best_of_first = std::min(best_of_first, *recording.times[i]);
  CHECK(outcome.best_time == best_of_first);
  CHECK(recording.times[outcome.asked.back()]);  // a failed candidate is never asked for again
}

TEST_CASE("strategy evolutionary: beats the model's first choices by following measurements", "[autotune][strategy]") {
  const Recording recording(2.0);  // the model knows next to nothing
  int better = 0, trials = 0;
  for (int seed = 0; seed < 20; ++seed) {
    const auto outcome = search(*make_strategy("evolutionary", recording.ranked, seed), recording);
    const auto topk = search(*make_strategy("topk", recording.ranked, seed), recording);
    CHECK(std::set<size_t>(outcome.asked.begin(), outcome.asked.end()).size() == outcome.asked.size());
    trials = std::max(trials, static_cast<int>(outcome.asked.size()));
    better += outcome.best_time < topk.best_time;
  }
  CHECK(better >= 15);
  CHECK(trials < 80);
}

TEST_CASE("strategy: equal seeds give equal batches", "[autotune][strategy]") {
  const Recording recording(0.5);
  for (const char* name : {"exhaustive", "topk", "halving", "evolutionary"})
    CHECK(search(*make_strategy(name, recording.ranked, 3), recording).asked ==
          search(*make_strategy(name, recording.ranked, 3), recording).asked);
}

TEST_CASE("strategy: what is known before the search is not asked for", "[autotune][strategy]") {
  const Recording recording(0.5);
  for (const char* name : {"exhaustive", "topk", "evolutionary"}) {
    const auto strategy = make_strategy(name, recording.ranked, 3);
    for (size_t i = 0; i < recording.ranked.size(); ++i) strategy->tell(i, recording.times[i]);
    CHECK(search(*strategy, recording).asked.empty());
  }
  const auto halving = make_strategy("halving", recording.ranked, 3);
  for (size_t i = 0; i < recording.ranked.size(); ++i) halving->tell(i, recording.times[i]);
  CHECK(halving->ask().candidates.empty());
}

TEST_CASE("strategy: a space of one, of none, and where everything fails", "[autotune][strategy]") {
  const std::vector<Config> none, one{{{"a", int64_t{1}}}};
  for (const char* name : {"exhaustive", "topk", "halving", "evolutionary"}) {
    CHECK(make_strategy(name, none, 1)->ask().candidates.empty());
    const auto single = make_strategy(name, one, 1);
    CHECK(single->ask().candidates == std::vector<size_t>{0});
    single->tell(0, std::nullopt);
    int asks = 0;
    while (!single->ask().candidates.empty()) REQUIRE(++asks < 10);
  }
}

TEST_CASE("strategy: an unknown name lists the known", "[autotune][strategy]") {
  CHECK_THROWS_WITH(make_strategy("magic", {}, 1),
                    "no strategy is called \"magic\"; there are: exhaustive, topk, halving, evolutionary");
}
