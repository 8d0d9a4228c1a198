// jit/fabric/core/wait.cpp -- see wait.h.
// SPDX-License-Identifier: Apache-2.0
#include "jit/fabric/core/wait.h"

#include <atomic>
#include <chrono>
#include <sched.h>
#include <thread>

#include "jit/abi/channel_block.h"
#include "seqtile/abi.h"

namespace seqtile::fabric {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kSpins = 64;
constexpr auto kYieldTime = std::chrono::milliseconds(1);  // longer than a rank takes to get the core back
constexpr auto kNap = std::chrono::microseconds(50);
constexpr int kNapsPerLook = 100;

#if defined(__x86_64__)
void relax() { __builtin_ia32_pause(); }
#else
void relax() { asm volatile("yield"); }
#endif

int64_t load(const int64_t* word, std::memory_order order) {
  return std::atomic_ref<int64_t>(*const_cast<int64_t*>(word)).load(order);
}

/// An outcome, or -1 where the wait goes on.
int64_t outcome_of(int64_t seen, int64_t expected) {
  if (seen == expected) return channel::arrived;
  return static_cast<uint64_t>(seen ^ expected) >> channel::kHashBits == 0 ? int64_t{channel::mismatch} : -1;
}

/// Gives the core away, for a little longer the longer the wait. True when it is time to look after the peers.
class Backoff {
 public:
  bool wait() {
    if (waited() < kYieldTime) {
      sched_yield();
      return false;
    }
    std::this_thread::sleep_for(kNap);
    return ++naps_ % kNapsPerLook == 0;
  }
  Clock::duration waited() const { return Clock::now() - start_; }

 private:
  Clock::time_point start_ = Clock::now();
  int naps_ = 0;
};

}  // namespace

int64_t wait_for_flag(const int64_t* block, const int64_t* flag, int64_t expected) noexcept {
  for (int i = 0; i < kSpins; ++i) {
    const int64_t outcome = outcome_of(load(flag, std::memory_order_acquire), expected);
    if (outcome >= 0) return outcome;
    relax();
  }
  const auto* own = &block[channel::peers + channel::num_peer_words * block[channel::rank]];
  const auto* abort = reinterpret_cast<const int64_t*>(own[channel::abort_address]);
  const auto* watch = reinterpret_cast<const PeerWatch*>(block[channel::wait_context]);
  const std::chrono::nanoseconds timeout(block[channel::timeout_ns]);
  Backoff backoff;
  while (true) {
    const int64_t outcome = outcome_of(load(flag, std::memory_order_acquire), expected);
    if (outcome >= 0) return outcome;
    if (load(abort, std::memory_order_relaxed) != 0) return channel::aborted;
    if (timeout.count() >= 0 && backoff.waited() > timeout) return channel::timed_out;
    if (backoff.wait() && watch && watch->has_dead_peer()) {
      const int64_t last = outcome_of(load(flag, std::memory_order_acquire), expected);  // stored before the death
      return last >= 0 ? last : channel::peer_died;
    }
  }
}

bool wait_until(const std::function<bool()>& is_done, const PeerWatch* watch) {
  Backoff backoff;
  while (!is_done())
    if (backoff.wait() && watch && watch->has_dead_peer()) return is_done();
  return true;
}

}  // namespace seqtile::fabric
