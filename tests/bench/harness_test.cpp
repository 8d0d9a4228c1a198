// tests/bench/harness_test.cpp -- races: verified first, interleaved, failures kept apart.
// SPDX-License-Identifier: Apache-2.0
#include "bench/harness.h"

#include <catch2/catch.hpp>
#include <set>
#include <stdexcept>

namespace seqtile::bench {
namespace {

/// An arena with the operation y = 2 over one number, and a log of its calls.
class FakeArena : public Arena {
 public:
  int copies() const override { return 3; }
  std::unique_ptr<Contestant> enter(const std::string& implementation) override {
    if (implementation == "absent") throw std::runtime_error("library not found");
    const double value = implementation == "wrong" ? 3 : 2;
    return make_contestant([this, implementation, value](int copy) {
      if (implementation != "lazy") y[copy] = value;
      log.push_back(implementation);
      copies_used.insert(copy);
    });
  }
  void poison(int copy) override { y[copy] = -1; }
  double max_error(int copy) override { return y[copy] == 2 ? 0 : 5; }
  double error_limit(const std::string&) const override { return 1; }

  std::vector<double> y = std::vector<double>(3, 2.0);
  std::vector<std::string> log;
  std::set<int> copies_used;
};

RunOptions quick() { return {.rounds = 4, .round_s = 1e-9}; }

}  // namespace

TEST_CASE("harness: implementations take turns in every round", "[bench]") {
  FakeArena arena;
  const auto results = race(arena, Case{}, {"a", "b"}, quick());
  REQUIRE(results.size() == 2);
  CHECK(results[0].implementation == "a");
  CHECK(results[0].seconds.size() == 4);
  CHECK(results[1].seconds.size() == 4);
  // After qualifying (a verified call and two timed calls of each), the rounds begin with each implementation in turn.
  const std::vector<std::string> rounds(arena.log.begin() + 6, arena.log.end());
  CHECK(rounds == std::vector<std::string>{"a", "b", "b", "a", "a", "b", "b", "a"});
  CHECK(arena.copies_used == std::set<int>{0, 1, 2});
}

TEST_CASE("harness: a wrong or lazy implementation is not timed", "[bench]") {
  FakeArena arena;
  const auto results = race(arena, Case{}, {"wrong", "lazy", "right"}, quick());
  for (int i : {0, 1}) {
    CHECK(results[i].failure.find("wrong result") == 0);
    CHECK(results[i].seconds.empty());
  }
  CHECK(results[2].failure.empty());
  CHECK(results[2].seconds.size() == 4);
}

TEST_CASE("harness: an implementation that cannot be set up says why", "[bench]") {
  FakeArena arena;
  const auto results = race(arena, Case{}, {"absent", "right"}, quick());
  CHECK(results[0].failure == "library not found");
  CHECK(results[1].seconds.size() == 4);
}

TEST_CASE("harness: samples that the tuner's contradict are said", "[bench]") {
  CHECK(tuner_difference(4500, 4500, 1).empty());
  CHECK(tuner_difference(4500 * 1.29, 4500, 1).empty());
  CHECK(tuner_difference(4500 / 1.29, 4500, 1).empty());
  CHECK(tuner_difference(11000, 4500, 1).find("2.44 times the tuner's 4500.0 us") == 0);
  CHECK(tuner_difference(3000, 4500, 1).find("0.67 times") == 0);
  CHECK(tuner_difference(3400, 4500, 0.9).empty());  // the call is shorter than the tuner's
}

TEST_CASE("harness: a case's name is its path", "[bench]") {
  const Case item{.operation = "linear", .dtype = "f32", .shape = "m512_n4096_k4096", .threads = 2};
  CHECK(item.name("seqtile") == "linear/f32/m512_n4096_k4096/seqtile/t2");
}

}  // namespace seqtile::bench
