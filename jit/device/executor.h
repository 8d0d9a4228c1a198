// jit/device/executor.h -- the threads that run the programs of a grid on the host.
// SPDX-License-Identifier: Apache-2.0
//
// A fixed set of preallocated workers; the caller is worker 0. A server may hand in its own pool by implementing
// Executor. Programs of one run may execute in any order and must not wait for each other.
#pragma once
#include <cstdint>
#include <memory>

namespace seqtile {

class Executor {
 public:
  /// Runs items [begin, end) of the run; called from several threads at once.
  using Task = void (*)(void* context, int64_t begin, int64_t end);

  virtual ~Executor() = default;
  /// Threads that can work on one run, the caller included.
  virtual int num_workers() const = 0;
  /// Runs `count` items in chunks of at least one and returns when all are done. May be called from many threads: a
  /// run that finds the workers busy with another goes ahead on its caller alone. Never throws, never allocates.
  virtual void run(int64_t count, Task task, void* context) = 0;
};

/// Our own pool of `num_threads` (the caller and num_threads - 1 workers, spinning briefly before they sleep).
std::unique_ptr<Executor> make_executor(int num_threads);

}  // namespace seqtile
