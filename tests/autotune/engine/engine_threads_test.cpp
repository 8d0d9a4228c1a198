// tests/autotune/engine/engine_threads_test.cpp -- many threads on one handle; workspaces; counters.
// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>

#include <cstring>
#include <mutex>
#include <thread>

#include "autotune/engine/launch_plan.h"
#include "autotune/engine/kernel_loader.h"
#include "autotune/kernel_name.h"
#include "seqtile/error.h"
#include "tests/support/fakes/fake_op.h"

using namespace seqtile;
using namespace seqtile::test;

TEST_CASE("engine: eight threads on one handle give the bits of a serial run", "[autotune][engine]") {
  FakeWorld world;
  for (const auto& bucket : autotune::buckets(1, 512)) world.record(bucket.hi, 4 << (bucket.hi % 5));
  const auto engine = world.open(MissPolicy::strict);
  const Handle handle = engine->prepare(world.workload);
  const auto run = [&](int64_t length) {
    ScaleCall call(length);
    handle(call.tensors(), length, {&length, 1});
    return call.y;
  };
  std::vector<std::vector<float>> serial;
  for (int64_t length = 1; length <= 512; ++length) serial.push_back(run(length));
  std::atomic<int64_t> different{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      for (int64_t i = 0; i < 512; ++i) {
        const int64_t length = 1 + (i * 31 + t * 64) % 512;
        const auto y = run(length);
        const auto& expected = serial[length - 1];
        if (std::memcmp(y.data(), expected.data(), y.size() * sizeof(float)) != 0) ++different;
      }
    });
  }
  for (auto& thread : threads) thread.join();
  CHECK(different == 0);
  CHECK(world.device->dirty_tickets == 0);
  const EngineCounters counters = engine->counters();
  CHECK(counters.hits == 9 * 512);
  CHECK(counters.launches == 9 * 512);
}

TEST_CASE("workspaces: zero at first, kept by later calls, grown when needed, one set a running call", "[autotune]") {
  FakeDevice device;
  autotune::WorkspacePool pool;
  auto first = pool.take(2, {});
  auto second = pool.take(2, {});
  CHECK(first.get() != second.get());
  auto* bytes = static_cast<unsigned char*>(first->reserve(0, 100, 300, device));
  CHECK(reinterpret_cast<uintptr_t>(bytes) % autotune::kWorkspaceAlignment == 0);
  for (int i = 0; i < 300; ++i) REQUIRE(bytes[i] == 0);
  bytes[299] = 7;
  CHECK(first->reserve(0, 300, 300, device) == bytes);
  CHECK(bytes[299] == 7);
  auto* grown = static_cast<unsigned char*>(first->reserve(0, 1000, 1000, device));
  for (int i = 0; i < 1000; ++i) REQUIRE(grown[i] == 0);
  CHECK(first->reserve(1, 8, 8, device) != grown);
  const autotune::WorkspaceSet* kept = first.get();
  pool.give_back(std::move(first));
  CHECK(pool.take(2, {}).get() == kept);
}

TEST_CASE("workspaces: more sets than the pool keeps are freed, not lost", "[autotune]") {
  FakeDevice device;
  autotune::WorkspacePool pool;
  std::vector<std::unique_ptr<autotune::WorkspaceSet>> sets;
  for (int i = 0; i < 100; ++i) {
    sets.push_back(pool.take(1, {}));
    REQUIRE(sets.back()->reserve(0, 64, 64, device));
  }
  for (auto& set : sets) pool.give_back(std::move(set));
  CHECK(pool.take(1, {}));
}

TEST_CASE("workspaces: a set stays with its stream", "[autotune]") {
  autotune::WorkspacePool pool;
  int streams[2];
  const Stream a{&streams[0]}, b{&streams[1]};
  auto of_a = pool.take(1, a);
  const autotune::WorkspaceSet* kept = of_a.get();
  pool.give_back(std::move(of_a));
  auto of_b = pool.take(1, b);
  CHECK(of_b.get() != kept);
  CHECK(of_b->stream().handle == b.handle);
  CHECK(pool.take(1, a).get() == kept);
}

TEST_CASE("engine: threads that want one binary at the same time all get it, or the reason why there is none",
          "[autotune][engine]") {
  autotune::OpDef op = scale_rows_op();
  const autotune::Workload workload = op.normalize(scale_rows());
  const autotune::Config config = op.default_config(workload, 8, host_target());
  const auto build = op.build;
  std::atomic<int> starting{0}, builds{0}, inside{0}, most_inside{0};
  std::atomic<bool> fails{true};
  op.build = [&](auto&... arguments) {
    ++builds;
    most_inside = std::max(most_inside.load(), ++inside);
    while (starting < 4) std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::milliseconds(50));  // the others would come in here, if they could
    --inside;
    if (fails) throw Error(ErrorCode::compile_failed, "no kernel");
    build(arguments...);
  };
  std::mutex mutex;
  std::vector<std::string> errors;
  std::vector<KernelBinary> binaries;
  const auto run_four = [&] {
    starting = 0;
    std::vector<std::jthread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&] {
        ++starting;
        try {
          KernelBinary binary = autotune::compile_shared(op, workload, config, host_target());
          std::lock_guard lock(mutex);
          binaries.push_back(std::move(binary));
        } catch (const Error& error) {
          std::lock_guard lock(mutex);
          errors.emplace_back(error.what());
        }
      });
    }
  };
  run_four();
  CHECK(errors == std::vector<std::string>(4, "no kernel"));
  fails = false;
  builds = 0;
  run_four();
  REQUIRE(binaries.size() == 4);
  CHECK(builds >= 1);
  CHECK(most_inside == 1);  // a thread that comes behind the first one's end builds again, but never beside it
  for (const KernelBinary& binary : binaries) {
    CHECK(binary.symbol == kernel_name(op, workload, config, host_target()));
    CHECK(binary.code == binaries.front().code);
  }
}
