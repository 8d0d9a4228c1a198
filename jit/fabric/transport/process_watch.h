// jit/fabric/transport/process_watch.h -- whether a process that is waited for still lives.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <atomic>
#include <chrono>
#include <cstdint>
#include <vector>

#include <poll.h>
#include <sys/types.h>

#include "jit/base/descriptor.h"
#include "jit/fabric/core/wait.h"

namespace seqtile::fabric {

/// Watches the peers by descriptors that become readable when a process ends. A peer that has ended without giving its
/// fabric up is dead. A peer that has given it up and then ended may have sent all that this rank waits for: other
/// peers may still send, so has_dead_peer() counts it only after kGrace.
class ProcessWatch final : public PeerWatch {
 public:
  /// `left`: a bit for each rank that has given its fabric up. Errors: out_of_resources.
  ProcessWatch(const std::vector<pid_t>& pids, int own, const std::atomic<uint32_t>& left);
  bool has_dead_peer() const noexcept override;
  bool is_dead(int rank) const;

 private:
  static constexpr std::chrono::milliseconds kGrace{500};

  std::vector<Descriptor> descriptors_;
  std::vector<pollfd> polled_;
  const std::atomic<uint32_t>& left_;
  mutable std::atomic<int64_t> first_seen_{0};  ///< when a peer was first seen to have left and ended
  uint32_t ended_ = 0;                          ///< before they could be watched: a bit for each
};

}  // namespace seqtile::fabric
