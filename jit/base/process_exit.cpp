// jit/base/process_exit.cpp -- see process_exit.h.
// SPDX-License-Identifier: Apache-2.0
#include "jit/base/process_exit.h"

#include <unistd.h>

#include <atomic>
#include <bit>
#include <condition_variable>
#include <cstdlib>
#include <mutex>

namespace seqtile {
namespace {

/// All of it is there until the process is gone: nothing here has a destructor.
struct Gate {
  std::mutex mutex;
  std::condition_variable changed;
  int inside = 0;
  uint64_t passes = 0;
  pid_t process = getpid();  ///< a forked child has none of the threads that were inside
};

Gate& gate() {
  static Gate& gate = *new Gate;  // NOLINT: for ever
  return gate;
}

std::atomic<bool> exiting{false};
thread_local int own_passes = 0;

void close_gate() {
  Gate& g = gate();
  std::unique_lock lock(g.mutex);
  exiting.store(true, std::memory_order_relaxed);
  if (g.process == getpid()) g.changed.wait(lock, [&] { return g.inside == own_passes; });
}

/// From the load of the library on: the first pass may begin when exit() has run all handlers but the libraries' own,
/// which come in such an order that LLVM's statics go after this.
[[maybe_unused]] const int watch_from_load = std::atexit(close_gate);

}  // namespace

bool is_exiting() { return exiting.load(std::memory_order_relaxed); }

void watch_exit() { std::atexit(close_gate); }

ExitPass::ExitPass() {
  Gate& g = gate();
  std::unique_lock lock(g.mutex);
  if (is_exiting() && own_passes == 0 && g.process == getpid()) g.changed.wait(lock, [] { return false; });
  ++own_passes;
  ++g.inside;
}

ExitPass::~ExitPass() {
  Gate& g = gate();
  const std::lock_guard lock(g.mutex);
  --own_passes;
  --g.inside;
  // exit() destroys statics first that LLVM made after the last watch.
  const bool is_watched_anew = std::has_single_bit(++g.passes);
  if (is_watched_anew) watch_exit();
  if (is_exiting()) g.changed.notify_all();
}

}  // namespace seqtile
