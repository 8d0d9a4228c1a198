// tests/support/protocol/flag_recorder.h -- records the flags of simulated GPUs, in the order of the PTX machine.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <mutex>
#include <string>
#include <vector>

#include "jit/sim/checks/memory_map.h"
#include "seqtile/fabric.h"
#include "tests/support/protocol/protocol_path.h"

namespace seqtile::test {

class FlagRecorder {
 public:
  /// Records calls of one operation at these lengths. Requires: the recorder outlives the channel.
  FlagRecorder(const Protocol& protocol, kernels::seqpar::ExchangeShape shape, std::vector<int64_t> lengths);
  FlagRecorder(const FlagRecorder&) = delete;
  FlagRecorder& operator=(const FlagRecorder&) = delete;

  /// Called on each rank before its first launch; does nothing on other devices.
  void watch(Channel& channel);
  const Protocol& protocol() const { return protocol_; }
  const kernels::seqpar::ExchangeShape& shape() const { return shape_; }
  const std::vector<int64_t>& lengths() const { return lengths_; }
  const std::vector<FlagEvent>& events() const { return events_; }
  /// Empty if the events are a path of the protocol. Also empty if nothing was watched, a rank is alone, or there are
  /// more ranks than in the model.
  std::string refusal() const;

 private:
  /// The rank whose kernel made the access.
  int rank_of(const sim::WatchedAccess& access) const;
  void note_flag(int owner, int64_t flags_per_source, uint64_t first_epoch, const sim::WatchedAccess& access);
  void note_epoch(int rank, uint64_t first_epoch, const sim::WatchedAccess& access);

  const Protocol& protocol_;
  const kernels::seqpar::ExchangeShape shape_;
  const std::vector<int64_t> lengths_;
  std::mutex mutex_;
  bool is_watching_ = false, is_shared_ = false;
  std::vector<int64_t> ended_;  ///< number of ended calls, by rank
  std::vector<FlagEvent> events_;
};

}  // namespace seqtile::test
