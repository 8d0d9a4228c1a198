// tests/autotune/engine/engine_cpu_test.cpp -- the engine on the host CPU: real compiler, real stores, real tuner.
// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>

#include <cmath>
#include <cstring>
#include <thread>

#include "seqtile/operations.h"
#include "seqtile/ops/linear.h"
#include "seqtile/ops/rows.h"
#include "tests/support/fakes/fake_op.h"

using namespace seqtile;
using namespace seqtile::test;

namespace {

constexpr int64_t kOutputs = 40, kInputs = 72;

std::vector<float> values(int64_t count, unsigned seed) {
  std::vector<float> result(count);
  fill_normal(tensor(result.data(), {count}), 0, 1, seed);
  return result;
}

/// A folder with a cache of its own, and the engine's options for it.
struct Home {
  Home() { setenv("SEQTILE_CONFIG_DIR", folder.file("config").c_str(), 1); }
  EngineOptions options(MissPolicy policy) const {
    EngineOptions options;
    options.threads = 2;
    options.cache = folder.file("tuning.db");
    options.artifacts = folder.file("artifacts.db");
    options.policy = policy;
    options.max_length = 256;
    return options;
  }
  TempFolder folder;
  const autotune::Registry registry = kernels::make_registry();
};

}  // namespace

TEST_CASE("engine: every configuration of an operation of one's own computes the same on the CPU",
          "[autotune][engine][cpu]") {
  FakeWorld world;
  EngineOptions options = world.options(MissPolicy::strict);
  options.threads = world.threads = 2;
  const auto probe = make_cpu_device(1);
  world.info = probe->info();
  const std::vector<int64_t> lengths{1, 2, 3, 7, 16, 17, 63, 64, 65, 127, 257, 1000};
  for (size_t i = 0; i < lengths.size(); ++i) world.record(lengths[i], int64_t{4} << (i % 5));
  for (const bool is_second : {false, true}) {
    const auto engine = Engine::open(options, world.registry);
    const Handle handle = engine->prepare(world.workload);
    for (const int64_t length : lengths) {
      ScaleCall call(length);
      const int64_t factor = 3;
      handle(call.tensors(), length, {&factor, 1});
      CHECK(call.is_right(factor));
    }
    const EngineCounters counters = engine->counters();
    CHECK(counters.compiles_at_load == (is_second ? 0 : 5));
    CHECK(counters.compiles == 0);
    CHECK(counters.hits == static_cast<int64_t>(lengths.size()));
  }
}

TEST_CASE("engine: eight threads on one linear handle give the bits of a serial run", "[autotune][engine][cpu]") {
  const Home home;
  const auto engine = Engine::open(home.options(MissPolicy::nearest), home.registry);
  const auto linear =
      engine->prepare(kernels::Linear{.n = kOutputs, .k = kInputs, .activation = kernels::Activation::gelu});
  auto x = values(256 * kInputs, 1), w = values(kOutputs * kInputs, 2);
  const auto run = [&](int64_t length) {
    std::vector<float> y(length * kOutputs, NAN);
    linear({.x = make_tensor(x.data(), DType::f32, {length, kInputs}),
            .w = make_tensor(w.data(), DType::f32, {kOutputs, kInputs}),
            .y = make_tensor(y.data(), DType::f32, {length, kOutputs})});
    return y;
  };
  std::vector<std::vector<float>> serial;
  for (int64_t length = 1; length <= 256; ++length) serial.push_back(run(length));
  for (const auto& y : serial) REQUIRE_FALSE(std::isnan(y.back()));
  std::atomic<int64_t> different{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      for (int64_t i = 0; i < 256; ++i) {
        const int64_t length = 1 + (i * 31 + t * 32) % 256;
        const auto y = run(length);
        if (std::memcmp(y.data(), serial[length - 1].data(), y.size() * sizeof(float)) != 0) ++different;
      }
    });
  }
  for (auto& thread : threads) thread.join();
  CHECK(different == 0);
  CHECK(engine->counters().launches == 9 * 256);
}

TEST_CASE("engine: a policy that tunes is refused at once where no program can run candidates", "[autotune][engine]") {
  const Home home;
  unsetenv("SEQTILE_WORKER");  // this program never calls run_worker()
  for (const MissPolicy policy : {MissPolicy::tune, MissPolicy::background})
    CHECK_THROWS_WITH(Engine::open(home.options(policy), home.registry),
                      Catch::Contains("run_worker() first thing in main()") && Catch::Contains("SEQTILE_WORKER"));
  CHECK(Engine::open(home.options(MissPolicy::nearest), home.registry) != nullptr);
}

TEST_CASE("engine: policy tune with the real tuner tunes each touched bucket once", "[autotune][engine][cpu]") {
  const Home home;
  setenv("SEQTILE_WORKER", SEQTILE_EXIT_HELPER, 1);  // which has the library's operations
  constexpr int64_t kN = 64;
  auto x = values(64 * kN, 1), weight = values(kN, 2);
  for (const bool is_second : {false, true}) {
    const auto engine = Engine::open(home.options(MissPolicy::tune), home.registry);
    const auto norm = engine->prepare(kernels::RmsNorm{.n = kN});
    for (const int64_t length : {1, 5, 8, 6, 40, 37}) {  // buckets 1, 5..8 and 37..40
      std::vector<float> y(length * kN, NAN);
      norm({.x = make_tensor(x.data(), DType::f32, {length, kN}),
            .weight = make_tensor(weight.data(), DType::f32, {kN}),
            .y = make_tensor(y.data(), DType::f32, {length, kN})});
      double squares = 0;
      for (int64_t i = 0; i < kN; ++i) squares += double(x[i]) * x[i];
      const double expected = x[0] / std::sqrt(squares / kN + 1e-5) * weight[0];
      CHECK(std::abs(y[0] - expected) < 1e-5);
    }
    CHECK(engine->counters().tunings == (is_second ? 0 : 3));
    CHECK(engine->counters().misses_no_record + engine->counters().misses_above_top == (is_second ? 0 : 3));
    CHECK(norm.handle().explain(39).origin != "none");
  }
  unsetenv("SEQTILE_WORKER");
}
