// tests/jit/runtime/cpu/openmp_executor_test.cpp -- runs on the threads of an OpenMP library, where there is one.
// SPDX-License-Identifier: Apache-2.0
#include "seqtile/device.h"

#include <catch2/catch.hpp>

#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <thread>
#include <vector>

#include "seqtile/error.h"
#include "tests/jit/runtime/cpu/executor_runs.h"

namespace seqtile {
namespace {

/// Whether the process has the library now. Errors of a first call without it are checked on the way.
bool load_openmp() {
  if (!has_openmp()) {
    try {
      make_openmp_executor();
      FAIL("there is no OpenMP library, and yet an executor");
    } catch (const Error& error) {
      CHECK(error.code() == ErrorCode::unsupported);
      CHECK_THAT(error.what(), Catch::Contains("libgomp"));
    }
    if (!dlopen("libgomp.so.1", RTLD_NOW | RTLD_LOCAL)) {
      WARN("no libgomp.so.1 on this machine: nothing is tested");
      return false;
    }
  }
  return true;
}

using test::runs_each_item_once;

TEST_CASE("openmp executor: every item runs once, for any number of callers", "[jit][executor]") {
  if (!load_openmp()) return;
  CHECK(has_openmp());
  CHECK(make_openmp_executor()->num_workers() >= 1);
  for (const int threads : {1, 2, 5}) {
    const auto executor = make_openmp_executor(threads);
    CHECK(executor->num_workers() == threads);
    for (const int64_t count : {0, 1, 2, 3, 7, 64, 1000}) {
      INFO(threads << " threads, " << count << " items");
      REQUIRE(runs_each_item_once(*executor, count));
    }
  }
  const auto executor = make_openmp_executor(2);
  std::atomic<int> failures{0};
  std::vector<std::thread> callers;
  for (int caller = 0; caller < 3; ++caller)
    callers.emplace_back([&] {
      for (int repeat = 0; repeat < 200; ++repeat)
        if (!runs_each_item_once(*executor, 100)) ++failures;
    });
  for (std::thread& caller : callers) caller.join();
  CHECK(failures.load() == 0);
}

TEST_CASE("openmp executor: as many threads as asked for work on one run", "[jit][executor]") {
  if (!load_openmp()) return;
  CHECK(test::three_threads_meet(*make_openmp_executor(3)));
}

TEST_CASE("openmp executor: a child of fork runs on its caller", "[jit][executor]") {
  if (!load_openmp()) return;
  const auto executor = make_openmp_executor(3);
  REQUIRE(runs_each_item_once(*executor, 50));
  const pid_t child = fork();
  if (child == 0) _exit(runs_each_item_once(*executor, 50) && !has_openmp() ? 0 : 1);
  int status = -1;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(status == 0);
}

TEST_CASE("openmp executor: refuses a number of threads that makes no sense", "[jit][executor]") {
  for (const int threads : {-1, 100000}) {
    try {
      make_openmp_executor(threads);
      FAIL("accepted " << threads);
    } catch (const Error& error) {
      CHECK(error.code() == ErrorCode::invalid_argument);
    }
  }
}

}  // namespace
}  // namespace seqtile
