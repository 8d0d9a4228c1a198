// jit/fabric/carrier.h -- a rank's thread that carries rows, flags and texts to the ranks of other nodes.
// SPDX-License-Identifier: Apache-2.0
//
// Rows and the flag behind them are one message: the receiver's thread copies the rows to its staging and then stores
// the flag with release order, as a rank of its own node would have done. Memory has the same number on all ranks; what
// comes for memory that is gone is dropped. docs/seqpar/protocol.md says why a delay does no harm.
#pragma once
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "jit/base/channel_block.h"
#include "jit/fabric/node_link.h"
#include "jit/fabric/wait.h"

namespace seqtile::fabric {

/// What is stored at a peer: rows, perhaps none, then a word.
struct Delivery {
  uint64_t staging;  ///< the number of the memory that the rows go to
  int64_t data_offset, rows, row_bytes, pitch;
  uint64_t flags;  ///< that of the word
  int64_t flag_offset, flag;
  bool has_word = true;  ///< false: rows alone, more follow
};

class Carrier;

/// Where the carrier looks for what is to be sent.
class Source {
 public:
  virtual ~Source() = default;
  /// Sends what there is by Carrier::deliver(); whether there was anything.
  virtual bool forward(Carrier& carrier) = 0;
};

class Carrier final : public PeerWatch {
 public:
  /// A rank that has not been heard of for so long is dead.
  Carrier(std::unique_ptr<NodeLink> link, std::vector<int> remote_ranks, std::chrono::nanoseconds silence);
  ~Carrier() override;
  const std::vector<int>& remote_ranks() const { return remote_ranks_; }

  /// To all remote ranks: this rank's text of a meeting.
  void send_text(uint64_t meeting, std::string_view text);
  /// What the remote ranks have sent, in their order. Errors: aborted where one has died or left.
  std::vector<std::string> await_texts(uint64_t meeting, std::chrono::nanoseconds patience, const PeerWatch& watch);

  /// From here on it takes what peers send there.
  void add_memory(uint64_t number, std::span<std::byte> own);
  void remove_memory(uint64_t number);
  void add_source(Source& source);
  /// Forwards what is there before.
  void remove_source(Source& source);
  /// For sources. `rows`: where the first row is.
  void deliver(int to, const Delivery& what, const std::byte* rows);

  /// This rank takes part no more: nobody need wait for it.
  void leave();
  bool has_dead_peer() const noexcept override;

 private:
  using Clock = std::chrono::steady_clock;
  struct Header;

  void run();
  bool step();
  void handle(const NodeMessage& message);
  void take(const Delivery& what, std::span<const std::byte> rows);
  void send(int to, const Header& header, std::string_view text = {});
  void tell_all(const Header& header, std::string_view text = {});
  bool has_texts(uint64_t meeting);

  const std::unique_ptr<NodeLink> link_;
  const std::vector<int> remote_ranks_;
  const std::chrono::nanoseconds silence_;
  std::mutex mutex_;  ///< of all that follows but for the atomics
  std::map<uint64_t, std::span<std::byte>> memories_;
  std::vector<Source*> sources_;
  std::map<uint64_t, std::map<int, std::string>> texts_;  ///< by meeting and rank
  uint32_t left_ = 0;                                     ///< a bit for each rank that has said so
  bool has_left_ = false;                                 ///< this one
  Clock::time_point next_sign_;
  std::array<std::atomic<int64_t>, channel::kMaxRanks> heard_{};  ///< when, by rank
  std::atomic<int64_t> looked_{0};                                ///< when all that had come was received
  std::atomic<bool> is_stopping_{false};
  std::thread thread_;
};

}  // namespace seqtile::fabric
