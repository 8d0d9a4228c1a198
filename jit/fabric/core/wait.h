// jit/fabric/core/wait.h -- how a thread waits for what another thread or process stores.
// SPDX-License-Identifier: Apache-2.0
//
// The thread spins for about a microsecond, then yields, as ranks may share a core, then sleeps in short naps, between
// which it looks for dead peers. Nothing wakes it: a rank that stores a flag makes no system call.
#pragma once
#include <cstdint>
#include <functional>

namespace seqtile::fabric {

/// Says whether a peer has died. A long wait asks it now and then.
class PeerWatch {
 public:
  virtual ~PeerWatch() = default;
  /// Whether a rank has died. Thread-safe, never throws.
  virtual bool has_dead_peer() const noexcept = 0;
};

/// A channel::WaitFunction; the context is null or a PeerWatch.
int64_t wait_for_flag(const int64_t* block, const int64_t* flag, int64_t expected) noexcept;

/// Waits until `is_done` holds; false where `watch` (may be null) has seen a rank die before.
bool wait_until(const std::function<bool()>& is_done, const PeerWatch* watch);

}  // namespace seqtile::fabric
