// tests/autotune/engine/engine_tune_test.cpp -- tuning on demand (policy tune), and beside the calls (policy
// background).
// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>

#include <random>
#include <set>
#include <thread>

#include "tests/support/fakes/fake_op.h"

using namespace seqtile;
using namespace seqtile::test;

namespace {

/// Returns true for a right result. Any thread may call it, unlike Catch's macros.
bool call_at(const Handle& handle, int64_t length) {
  ScaleCall call(length);
  const int64_t factor = 2;
  handle(call.tensors(), length, {&factor, 1});
  return call.is_right(factor);
}

template <class Condition>
bool becomes_true(Condition condition) {
  for (int i = 0; i < 12'000; ++i) {
    if (condition()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return false;
}

}  // namespace

TEST_CASE("engine: policy tune costs one tuning a touched bucket, and none the second time", "[autotune][engine]") {
  FakeWorld world;
  std::mt19937_64 random(5);
  std::uniform_real_distribution<double> exponent(0, 20);
  std::vector<int64_t> lengths(10'000);
  std::set<int64_t> buckets;
  for (int64_t& length : lengths) {
    length = static_cast<int64_t>(std::exp2(exponent(random)));
    buckets.insert(autotune::bucket_index(length));
  }
  REQUIRE(buckets.size() > 100);
  const int64_t touched = static_cast<int64_t>(buckets.size());
  for (const bool is_second : {false, true}) {
    const auto engine = world.open(MissPolicy::tune);
    const Handle handle = engine->prepare(world.workload);
    world.device->computes = false;
    std::vector<float> x(size_t{4} << 20), y(size_t{4} << 20);
    for (const int64_t length : lengths) {
      const int64_t factor = 2;
      const std::vector<Tensor> tensors{make_tensor(x.data(), DType::f32, {length, 4}),
                                        make_tensor(y.data(), DType::f32, {length, 4})};
      handle(tensors, length, {&factor, 1});
    }
    const EngineCounters counters = engine->counters();
    CHECK(counters.tunings == (is_second ? 0 : touched));
    CHECK(counters.misses_no_record + counters.misses_above_top == (is_second ? 0 : touched));
    CHECK(counters.launches == 10'000);
    CHECK(counters.compiles == (is_second ? 0 : 1));
  }
  CHECK(world.tune_calls == touched);
  CHECK(std::set<int64_t>(buckets).size() == world.tuned.size());
  for (const autotune::Bucket& bucket : world.tuned) CHECK(buckets.count(autotune::bucket_index(bucket.lo)) == 1);
}

TEST_CASE("engine: threads that miss one bucket at once wait for one tuning", "[autotune][engine]") {
  FakeWorld world;
  world.tune_delay_ms = 50;
  const auto engine = world.open(MissPolicy::tune);
  const Handle handle = engine->prepare(world.workload);
  std::atomic<int> right{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) threads.emplace_back([&, t] { right += call_at(handle, 33 + t % 4); });
  for (auto& thread : threads) thread.join();
  CHECK(right == 8);
  CHECK(world.tune_calls == 1);
  CHECK(engine->counters().tunings == 1);
  CHECK(engine->counters().launches == 8);
  CHECK(handle.explain(33).origin == "tuned");
}

TEST_CASE("engine: lookup and explain never tune", "[autotune][engine]") {
  FakeWorld world;
  const auto engine = world.open(MissPolicy::tune);
  const Handle handle = engine->prepare(world.workload);
  CHECK_FALSE(handle.lookup(33));
  CHECK(handle.explain(33).origin == "none");
  CHECK(world.tune_calls == 0);
}

TEST_CASE("engine: a tuning that fails is tried once and the call is served without it", "[autotune][engine]") {
  FakeWorld world;
  world.tuner_fails = true;
  const auto engine = world.open(MissPolicy::tune);
  const Handle handle = engine->prepare(world.workload);
  for (int i = 0; i < 3; ++i) CHECK(call_at(handle, 33));
  CHECK(world.tune_calls == 1);
  CHECK(engine->counters().misses_no_record == 3);
  CHECK(handle.explain(33).origin == "default");
  // A refresh lets the tuner try again.
  world.tuner_fails = false;
  engine->refresh();
  CHECK(call_at(handle, 33));
  CHECK(world.tune_calls == 2);
  CHECK(handle.explain(33).origin == "tuned");
}

TEST_CASE("engine: policy tune over a file that cannot be written serves untuned", "[autotune][engine][fault]") {
  FakeWorld world;
  world.cache = world.folder.path();  // the path of a folder
  const auto engine = world.open(MissPolicy::tune);
  const Handle handle = engine->prepare(world.workload);
  for (int i = 0; i < 3; ++i) CHECK(call_at(handle, 33));
  CHECK(world.tune_calls == 1);
  CHECK(handle.explain(33).origin == "default");
}

TEST_CASE("engine: policy background serves at once and swaps the tuned plan in later", "[autotune][engine]") {
  FakeWorld world;
  world.record(1, 8);
  world.tuner_waits = true;
  const auto engine = world.open(MissPolicy::background);
  const Handle handle = engine->prepare(world.workload);
  // The tuning has begun and is held up, and calls are still served.
  REQUIRE(call_at(handle, 33));
  REQUIRE(becomes_true([&] { return world.tune_calls == 1; }));
  for (int i = 0; i < 10; ++i) CHECK(call_at(handle, 33));
  CHECK(world.device->last_block == 8);
  CHECK(engine->counters().tunings == 0);
  world.tuner_waits = false;
  REQUIRE(becomes_true([&] { return handle.lookup(33); }));
  CHECK(call_at(handle, 33));
  CHECK(world.device->last_block == 32);
  CHECK(world.tune_calls == 1);
  CHECK(engine->counters().tunings == 1);
  CHECK(handle.explain(33).origin == "tuned");
}

TEST_CASE("engine: calls go on while plans are swapped under them", "[autotune][engine]") {
  FakeWorld world;
  const auto engine = world.open(MissPolicy::background);
  const Handle handle = engine->prepare(world.workload);
  std::atomic<bool> stop{false};
  std::atomic<int64_t> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int64_t i = 0; !stop; ++i) wrong += !call_at(handle, 1 + (i * 7 + t) % 300);
    });
  }
  const bool all_tuned = becomes_true([&] { return engine->counters().tunings >= autotune::bucket_index(300) + 1; });
  for (int i = 0; i < 5; ++i) engine->refresh();
  stop = true;
  for (auto& thread : threads) thread.join();
  CHECK(all_tuned);
  CHECK(wrong == 0);
  CHECK(world.device->dirty_tickets == 0);
  for (int64_t length = 1; length <= 300; ++length) CHECK(handle.lookup(length));
}

TEST_CASE("engine: an engine that goes while it tunes interrupts the tuning", "[autotune][engine]") {
  FakeWorld world;
  world.tuner_waits = true;  // only the interrupt ends the tuning
  auto engine = world.open(MissPolicy::background);
  const Handle handle = engine->prepare(world.workload);
  for (const int64_t length : {1, 8, 64, 512}) CHECK(call_at(handle, length));
  REQUIRE(becomes_true([&] { return world.tune_calls > 0; }));
  engine.reset();
  CHECK(world.tune_calls == 1);
  CHECK(world.tuned.empty());
  CHECK(call_at(handle, 64));
}
