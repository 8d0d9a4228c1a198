// jit/fabric/core/rendezvous.h -- where the ranks of one process meet: the host's side of collective calls.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "seqtile/fabric.h"

namespace seqtile::fabric {

/// Errors: invalid_argument for a number of ranks that no fabric can have.
void check_world_size(int world_size);
/// Collective: the addresses of all ranks' buffers, by rank; `own` is this rank's buffer.
std::vector<uint64_t> exchange_addresses(Fabric& fabric, const void* own);

/// The error message of a rank that has waited for others too long.
std::string waited_in_vain(int rank, const std::vector<int>& missing, std::chrono::nanoseconds timeout);

/// A barrier at which all ranks exchange texts: each rank brings one and gets the texts of all ranks.
class Rendezvous {
 public:
  explicit Rendezvous(int world_size) : brought_(static_cast<size_t>(world_size)), calls_(brought_.size()) {}
  /// Errors: aborted where a rank has left; timeout. After a timeout this rank has left.
  std::vector<std::string> exchange(int rank, std::string_view mine, std::chrono::nanoseconds timeout);
  /// A rank is gone: ranks that wait, and ranks that come later, get an error.
  void leave();

 private:
  [[noreturn]] static void refuse();
  std::vector<int> missing() const;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::string> brought_;
  std::vector<uint64_t> calls_;            ///< by rank: how many collective calls it has made
  size_t num_here_ = 0, num_leaving_ = 0;  ///< ranks in this call; ranks that still read texts of the one before
  uint64_t number_ = 0;                    ///< how many calls were complete
  bool has_left_ = false;
};

}  // namespace seqtile::fabric
