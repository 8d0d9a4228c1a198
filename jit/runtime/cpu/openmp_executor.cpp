// jit/runtime/cpu/openmp_executor.cpp -- the threads of the OpenMP library that the process has loaded; see
// seqtile/device.h.
// SPDX-License-Identifier: Apache-2.0
//
// A pool of our own beside OpenMP's would cost a process with operators of both the time of both: the workers of each
// wait by spinning on the cores that the other needs. So the same threads run both. GCC's, Intel's and LLVM's libraries
// all have GOMP_parallel.
#include "seqtile/device.h"

#include <dlfcn.h>
#include <pthread.h>

#include <algorithm>
#include <atomic>

#include <fmt/format.h>

#include "jit/base/thread_limit.h"
#include "jit/runtime/loaded_library.h"
#include "seqtile/error.h"

namespace seqtile {
namespace {

/// Functions of an OpenMP library.
struct OpenMp {
  void (*parallel)(void (*body)(void*), void* data, unsigned num_threads, unsigned flags) = nullptr;
  int (*max_threads)() = nullptr;
};

OpenMp find_openmp() {
  OpenMp found;
  void* library = find_loaded_library({"libgomp", "libiomp5", "libomp"}, "GOMP_parallel");
  if (!library) return found;
  found.parallel = reinterpret_cast<decltype(found.parallel)>(dlsym(library, "GOMP_parallel"));
  found.max_threads = reinterpret_cast<decltype(found.max_threads)>(dlsym(library, "omp_get_max_threads"));
  return found;
}

/// True in a process that fork() made of one with such an executor: OpenMP's threads are not there, and it would wait
/// for them. An atomic of the process, since a handler of fork() has no argument.
std::atomic<bool> is_forked{false};

void watch_forks() {
  static const int watched = pthread_atfork(nullptr, nullptr, [] { is_forked.store(true, std::memory_order_relaxed); });
  if (watched != 0) throw Error(ErrorCode::out_of_resources, "no memory to watch forks");
}

/// One run, on the stack of its caller.
struct Run {
  const int64_t count;
  const int num_workers;
  const Executor::Task task;
  void* const context;
  alignas(64) std::atomic<int64_t> next{0};  ///< first item that is not handed out

  /// Takes items in shrinking chunks, as the pool of our own does.
  void take_items() {
    int64_t begin = next.load(std::memory_order_relaxed);
    while (begin < count) {
      const int64_t end = begin + std::max<int64_t>(1, (count - begin) / (2 * num_workers));
      if (!next.compare_exchange_weak(begin, end, std::memory_order_relaxed)) continue;
      task(context, begin, end);
      begin = next.load(std::memory_order_relaxed);
    }
  }
};

class OpenMpExecutor final : public Executor {
 public:
  OpenMpExecutor(const OpenMp& openmp, int num_workers) : openmp_(openmp), num_workers_(num_workers) {}

  int num_workers() const override { return num_workers_; }

  void run(int64_t count, Task task, void* context) override {
    if (count <= 0) return;
    if (count == 1 || num_workers_ == 1 || is_forked.load(std::memory_order_relaxed)) return task(context, 0, count);
    Run run{count, num_workers_, task, context};
    const auto threads = static_cast<unsigned>(std::min<int64_t>(count, num_workers_));
    openmp_.parallel([](void* data) { static_cast<Run*>(data)->take_items(); }, &run, threads, 0);
  }

 private:
  const OpenMp openmp_;
  const int num_workers_;
};

}  // namespace

bool has_openmp() {
  if (is_forked.load(std::memory_order_relaxed)) return false;
  const OpenMp found = find_openmp();
  return found.parallel && found.max_threads;
}

std::unique_ptr<Executor> make_openmp_executor(int num_threads) {
  if (num_threads < 0 || num_threads > kMaxWorkers)
    throw Error(ErrorCode::invalid_argument,
                fmt::format("executor of {} threads: from 1 to {} are possible, or 0 for OpenMP's own number",
                            num_threads, kMaxWorkers));
  if (is_forked.load(std::memory_order_relaxed))
    throw Error(
        ErrorCode::unsupported,
        "this process is the child of a fork, and the threads of OpenMP are its parent's; use a pool of our own, "
        "or open the engine in a process that was started anew");
  const OpenMp found = find_openmp();
  if (!found.parallel || !found.max_threads)
    throw Error(ErrorCode::unsupported,
                "no OpenMP library (libgomp, libiomp5, libomp) is loaded in this process; load what brings it first, "
                "as PyTorch does, or use a pool of our own");
  watch_forks();
  const int most = std::clamp(found.max_threads(), 1, kMaxWorkers);
  return std::make_unique<OpenMpExecutor>(found, num_threads > 0 ? num_threads : most);
}

}  // namespace seqtile
