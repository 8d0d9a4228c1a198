// tests/jit/runtime/cpu/executor_test.cpp -- each item runs once, for any number of callers and workers.
// SPDX-License-Identifier: Apache-2.0
#include "seqtile/device.h"

#include <catch2/catch.hpp>

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "seqtile/error.h"
#include "tests/jit/runtime/cpu/executor_runs.h"

namespace seqtile {
namespace {

using test::runs_each_item_once;
using test::three_threads_meet;

TEST_CASE("executor: every item runs exactly once", "[jit][executor]") {
  for (const int threads : {1, 2, 5}) {
    const auto executor = make_executor(threads);
    CHECK(executor->num_workers() == threads);
    for (const int64_t count : {0, 1, 2, 3, 7, 64, 1000}) {
      INFO(threads << " threads, " << count << " items");
      for (int repeat = 0; repeat < 20; ++repeat) REQUIRE(runs_each_item_once(*executor, count));
    }
  }
}

TEST_CASE("executor: a single item runs on the caller in one piece", "[jit][executor]") {
  const auto executor = make_executor(3);
  std::thread::id ran_on;
  executor->run(
      1, [](void* context, int64_t, int64_t) { *static_cast<std::thread::id*>(context) = std::this_thread::get_id(); },
      &ran_on);
  CHECK(ran_on == std::this_thread::get_id());
}

TEST_CASE("executor: sleeping workers wake up and share a run", "[jit][executor]") {
  const auto executor = make_executor(3);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));  // far beyond the time that the workers spin
  CHECK(three_threads_meet(*executor));
}

struct Nested {
  Executor& executor;
  std::atomic<int> inner_items{0};
};

TEST_CASE("executor: a run inside a run goes ahead on its own thread", "[jit][executor]") {
  const auto executor = make_executor(3);
  Nested nested{*executor};
  executor->run(
      8,
      [](void* context, int64_t begin, int64_t end) {
        auto& outer = *static_cast<Nested*>(context);
        for (int64_t i = begin; i < end; ++i)
          outer.executor.run(
              5,
              [](void* inner, int64_t first, int64_t last) {
                static_cast<Nested*>(inner)->inner_items.fetch_add(static_cast<int>(last - first));
              },
              context);
      },
      &nested);
  CHECK(nested.inner_items.load() == 40);
}

TEST_CASE("executor: callers that find the workers busy run alone, and all finish", "[jit][executor]") {
  const auto executor = make_executor(2);
  std::atomic<int> failures{0};
  std::vector<std::thread> callers;
  for (int caller = 0; caller < 4; ++caller)
    callers.emplace_back([&] {
      for (int repeat = 0; repeat < 2000; ++repeat)
        if (!runs_each_item_once(*executor, 100)) ++failures;
    });
  for (std::thread& caller : callers) caller.join();
  CHECK(failures.load() == 0);
}

TEST_CASE("executor: is created and destroyed at once, used or not", "[jit][executor]") {
  for (int repeat = 0; repeat < 50; ++repeat) {
    const auto executor = make_executor(4);
    if (repeat % 2) REQUIRE(runs_each_item_once(*executor, 10));
  }
}

#ifndef __SANITIZE_THREAD__  // which allows no threads in the child of a process that had some
TEST_CASE("executor: the child of a fork works on its caller, and destroys what it has inherited", "[jit][executor]") {
  auto executor = make_executor(3);
  REQUIRE(runs_each_item_once(*executor, 50));
  const pid_t child = fork();
  if (child == 0) {
    const auto own = make_executor(3);  // its threads may have the numbers of those that are not there
    const bool is_right = runs_each_item_once(*executor, 50) && runs_each_item_once(*own, 50);
    executor.reset();
    _exit(is_right ? 0 : 1);
  }
  int status = -1;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(status == 0);
}
#endif

TEST_CASE("executor: refuses a number of threads that makes no sense", "[jit][executor]") {
  for (const int threads : {0, -1, 100000}) {
    try {
      make_executor(threads);
      FAIL("accepted " << threads);
    } catch (const Error& error) {
      CHECK(error.code() == ErrorCode::invalid_argument);
      CHECK_THAT(error.what(), Catch::Contains(std::to_string(threads)) && Catch::Contains("1024"));
    }
  }
}

}  // namespace
}  // namespace seqtile
