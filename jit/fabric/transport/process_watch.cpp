// jit/fabric/transport/process_watch.cpp -- see process_watch.h.
// SPDX-License-Identifier: Apache-2.0
#include "jit/fabric/transport/process_watch.h"

#include <algorithm>
#include <array>
#include <cerrno>

#include <fmt/format.h>
#include <sys/syscall.h>

#include "jit/fabric/transport/process_memory.h"
#include "seqtile/abi.h"

namespace seqtile::fabric {

using Clock = std::chrono::steady_clock;

ProcessWatch::ProcessWatch(const std::vector<pid_t>& pids, int own, const std::atomic<uint32_t>& left) : left_(left) {
  for (size_t rank = 0; rank < pids.size(); ++rank) {
    if (static_cast<int>(rank) == own) {
      polled_.push_back({-1, 0, 0});  // which poll() skips
      continue;
    }
    const auto fd = static_cast<int>(syscall(SYS_pidfd_open, pids[rank], 0));
    if (fd < 0 && errno != ESRCH)
      fail(ErrorCode::out_of_resources, fmt::format("cannot watch process {}: {}", pids[rank], system_reason()));
    descriptors_.emplace_back(fd);
    polled_.push_back({fd, POLLIN, 0});
    if (fd < 0) ended_ |= uint32_t{1} << rank;
  }
}

bool ProcessWatch::has_dead_peer() const noexcept {
  std::array<pollfd, channel::kMaxRanks> now;
  std::copy(polled_.begin(), polled_.end(), now.begin());
  uint32_t ended = ended_;
  if (poll(now.data(), polled_.size(), 0) > 0)
    for (size_t rank = 0; rank < polled_.size(); ++rank) ended |= (now[rank].revents != 0 ? uint32_t{1} : 0) << rank;
  if (ended == 0) return false;
  if ((ended & ~left_.load()) != 0) return true;
  int64_t first = 0;
  const int64_t time = Clock::now().time_since_epoch().count();
  if (first_seen_.compare_exchange_strong(first, time)) return false;
  return time - first > std::chrono::duration_cast<Clock::duration>(kGrace).count();
}

bool ProcessWatch::is_dead(int rank) const {
  pollfd one = polled_[static_cast<size_t>(rank)];
  return (ended_ >> rank & 1) != 0 || poll(&one, 1, 0) > 0;
}

}  // namespace seqtile::fabric
