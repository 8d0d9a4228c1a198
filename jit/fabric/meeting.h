// jit/fabric/meeting.h -- where the ranks of one process meet: the host's side of collective calls.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "jit/fabric.h"

namespace seqtile::fabric {

/// Errors: invalid_argument where a fabric cannot have so many ranks.
void check_world_size(int world_size);
/// Collective: where the buffer is that each rank has made.
std::vector<uint64_t> exchange_addresses(Fabric& fabric, const void* own);

/// What a rank says that has waited for others too long.
std::string waited_in_vain(int rank, const std::vector<int>& missing, std::chrono::nanoseconds patience);

/// Everyone brings a text and leaves with all of them.
class Meeting {
 public:
  explicit Meeting(int world_size) : brought_(static_cast<size_t>(world_size)), meetings_(brought_.size()) {}
  /// Errors: aborted where a rank has left; timeout, after which this one has.
  std::vector<std::string> meet(int rank, std::string_view mine, std::chrono::nanoseconds patience);
  /// A rank is gone: nobody need wait for it.
  void leave();

 private:
  [[noreturn]] static void refuse();
  std::vector<int> missing() const;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::string> brought_;
  std::vector<uint64_t> meetings_;         ///< that a rank has come to
  size_t num_here_ = 0, num_leaving_ = 0;  ///< of this meeting; of the one before, while its texts are read
  uint64_t number_ = 0;                    ///< of meetings that were complete
  bool has_left_ = false;
};

}  // namespace seqtile::fabric
