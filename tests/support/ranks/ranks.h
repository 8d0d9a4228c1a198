// tests/support/ranks/ranks.h -- runs the same work on all ranks of a fabric, on threads or in processes.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "seqtile/error.h"
#include "seqtile/fabric.h"

namespace seqtile::testing {

/// Runs `work` on all ranks. Returns the errors by rank: "" without an error, "ended with status ..." if a process did
/// not return.
/// `kind`: "threads", "nodes" (threads, on two of them), or "processes", which must not take longer than ten minutes.
std::vector<std::string> on_ranks(const std::string& kind, int world_size, const std::function<void(Fabric&)>& work);

/// As on_ranks(), on a thread for each of `fabrics`.
std::vector<std::string> on_threads(std::vector<std::unique_ptr<Fabric>> fabrics,
                                    const std::function<void(Fabric&)>& work);

/// As on_ranks(), in processes that have not joined the fabric yet; `world` is the descriptor.
std::vector<std::string> on_processes(int world_size, const std::function<void(int world, int rank)>& work);

/// An event that one rank waits for and another one brings about, also in a process that was forked since.
class Signal {
 public:
  Signal() : descriptor_(eventfd(0, EFD_SEMAPHORE)) {}
  Signal(const Signal&) = delete;
  Signal& operator=(const Signal&) = delete;
  ~Signal() { close(descriptor_); }
  /// Ends one wait.
  void give() const { eventfd_write(descriptor_, 1); }
  /// Errors: timeout after two minutes.
  void wait() const {
    pollfd ready{descriptor_, POLLIN, 0};
    eventfd_t value = 0;
    if (poll(&ready, 1, 120'000) != 1 || eventfd_read(descriptor_, &value) != 0)
      throw Error(ErrorCode::timeout, "a test's signal was not given");
  }

 private:
  const int descriptor_;
};

}  // namespace seqtile::testing
