// jit/runtime/cpu/executor.cpp -- our own fixed pool of threads; see seqtile/device.h.
// SPDX-License-Identifier: Apache-2.0
//
// A run is open from the moment its description is published until its items are handed out. Workers join an open
// run by raising the count in `state_`; the caller closes it and waits for that count to fall to zero. So a worker that
// wakes too late simply does not join, and the description is never rewritten under a reader. Items are handed out in
// shrinking chunks (half of an even share of what is left): long contiguous stretches first, single items at the end.
#include "seqtile/device.h"

#include "jit/base/thread_limit.h"
#include "seqtile/error.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <pthread.h>
#include <signal.h>
#include <system_error>
#include <thread>
#include <unistd.h>
#include <vector>

namespace seqtile {
namespace {

/// Long enough to bridge the gap between two operations of a decoder layer, short enough not to be seen in `top`.
constexpr auto kSpinTime = std::chrono::microseconds(30);
/// Bridges the gap between two operations that an interpreter calls.
constexpr auto kMostSpinTime = std::chrono::microseconds(200);
constexpr uint32_t kOpen = 1u << 31;  ///< of `state_`; the bits below count the workers that have joined

#if defined(__x86_64__)
void relax() { __builtin_ia32_pause(); }
#else
void relax() { asm volatile("yield"); }
#endif

using Clock = std::chrono::steady_clock;

/// Spins until `atomic` no longer holds `value`, or until the deadline. Returns whether it holds another value.
bool spin_while_equal(const std::atomic<uint32_t>& atomic, uint32_t value, Clock::time_point deadline) {
  do {
    for (int i = 0; i < 64; ++i) {
      if (atomic.load(std::memory_order_acquire) != value) return true;
      relax();
    }
  } while (Clock::now() < deadline);
  return false;
}

/// Waits until `atomic` no longer holds `value`: spins, then sleeps in a futex.
void wait_while_equal(const std::atomic<uint32_t>& atomic, uint32_t value) {
  if (!spin_while_equal(atomic, value, Clock::now() + kSpinTime)) atomic.wait(value, std::memory_order_acquire);
}

/// A worker's waits between runs. The time for which it spins follows the gaps: where a longer one would have bridged
/// the last gap, it is the longest; each longer gap halves it.
class IdleWait {
 public:
  void while_equal(const std::atomic<uint32_t>& atomic, uint32_t value) {
    const Clock::time_point start = Clock::now();
    if (spin_while_equal(atomic, value, start + spin_)) return;
    atomic.wait(value, std::memory_order_acquire);
    spin_ = Clock::now() - start < kMostSpinTime ? kMostSpinTime : std::max(kSpinTime, spin_ / 2);
  }

 private:
  std::chrono::microseconds spin_ = kSpinTime;
};

class PoolExecutor final : public Executor {
 public:
  explicit PoolExecutor(int num_threads) : num_workers_(num_threads) {
    threads_.reserve(num_threads - 1);
    // Signals belong to the program's own threads; a new thread inherits this mask.
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    try {
      for (int i = 1; i < num_threads; ++i) threads_.emplace_back([this, i] { work(i); });
    } catch (const std::system_error& error) {
      pthread_sigmask(SIG_SETMASK, &before, nullptr);
      const size_t started = threads_.size();
      stop();
      throw Error(ErrorCode::out_of_resources,
                  fmt::format("executor of {} threads: the system refused after {} ({}); ask for fewer threads",
                              num_threads, started + 1, error.what()));
    }
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }
  ~PoolExecutor() override {
    if (has_workers()) stop();
    else new std::vector<std::thread>(std::move(threads_));  // NOLINT: never destroyed
  }

  int num_workers() const override { return num_workers_; }

  void run(int64_t count, Task task, void* context) override {
    if (count <= 0) return;
    if (count == 1 || threads_.empty() || is_busy_.exchange(true, std::memory_order_acquire)) {
      task(context, 0, count);
      return;
    }
    count_ = count;
    task_ = task;
    context_ = context;
    next_.store(0, std::memory_order_relaxed);
    state_.store(kOpen, std::memory_order_release);
    announce(count);
    run_chunks();
    close();
    is_busy_.store(false, std::memory_order_release);
  }

 private:
  void announce(int64_t count) {
    epoch_.fetch_add(1, std::memory_order_release);
    if (count > num_workers_ / 2) {
      epoch_.notify_all();
    } else {
      for (int64_t i = 1; i < count; ++i) epoch_.notify_one();
    }
  }

  void run_chunks() {
    int64_t begin = next_.load(std::memory_order_relaxed);
    while (begin < count_) {
      const int64_t end = begin + std::max<int64_t>(1, (count_ - begin) / (2 * num_workers_));
      if (!next_.compare_exchange_weak(begin, end, std::memory_order_relaxed)) continue;
      task_(context_, begin, end);
      begin = next_.load(std::memory_order_relaxed);
    }
  }

  void close() {
    uint32_t joined = state_.fetch_and(~kOpen, std::memory_order_acquire) & ~kOpen;
    while (joined != 0) {
      wait_while_equal(state_, joined);
      joined = state_.load(std::memory_order_acquire);
    }
  }

  bool join() {
    uint32_t state = state_.load(std::memory_order_relaxed);
    while (state & kOpen)
      if (state_.compare_exchange_weak(state, state + 1, std::memory_order_acquire)) return true;
    return false;
  }

  void work(int index) {
    pthread_setname_np(pthread_self(), fmt::format("seqtile-{}", index).c_str());
    uint32_t seen = 0;
    IdleWait wait;
    while (true) {
      wait.while_equal(epoch_, seen);
      seen = epoch_.load(std::memory_order_acquire);
      if (is_stopping_.load(std::memory_order_relaxed)) return;
      if (!join()) continue;
      run_chunks();
      // The caller sleeps only when the run is closed, and only the last one to leave need wake it.
      if (state_.fetch_sub(1, std::memory_order_release) == 1) state_.notify_one();
    }
  }

  void stop() {
    is_stopping_.store(true, std::memory_order_relaxed);
    epoch_.fetch_add(1, std::memory_order_release);
    epoch_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }

  /// The child of a fork has none of the threads, and joining one would wait for ever, or for a thread of its own.
  bool has_workers() const { return getpid() == creator_; }

  const int num_workers_;
  const pid_t creator_ = getpid();
  std::vector<std::thread> threads_;
  // The run: written by its caller while no worker has joined.
  int64_t count_ = 0;
  Task task_ = nullptr;
  void* context_ = nullptr;
  std::atomic<bool> is_busy_{false}, is_stopping_{false};
  alignas(64) std::atomic<int64_t> next_{0};    ///< first item that is not handed out
  alignas(64) std::atomic<uint32_t> state_{0};  ///< kOpen | joined workers
  alignas(64) std::atomic<uint32_t> epoch_{0};  ///< raised once a run; what idle workers wait on
};

}  // namespace

std::unique_ptr<Executor> make_executor(int num_threads) {
  if (num_threads < 1 || num_threads > kMaxWorkers)
    throw Error(ErrorCode::invalid_argument,
                fmt::format("executor of {} threads: from 1 to {} are possible", num_threads, kMaxWorkers));
  return std::make_unique<PoolExecutor>(num_threads);
}

}  // namespace seqtile
