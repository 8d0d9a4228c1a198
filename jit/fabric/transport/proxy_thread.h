// jit/fabric/transport/proxy_thread.h -- a rank's thread that sends rows, flags and texts to other nodes.
// SPDX-License-Identifier: Apache-2.0
//
// Rows and the flag behind them are one message. The receiver's proxy thread copies the rows to the receiver's
// staging and then stores the flag with release order, as a rank of the same node would have done. An allocation has
// the same number on all ranks; messages for an allocation that is gone are dropped. docs/seqpar/protocol.md says why
// a delay does no harm.
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

#include "jit/fabric/core/wait.h"
#include "jit/fabric/transport/node_link.h"
#include "seqtile/abi.h"

namespace seqtile::fabric {

/// A store at a peer: rows, perhaps none, then a word.
struct Delivery {
  uint64_t staging;  ///< the number of the memory that the rows go to
  int64_t data_offset, rows, row_bytes, pitch;
  uint64_t flags;  ///< the number of the memory that the word goes to
  int64_t flag_offset, flag;
  bool has_word = true;  ///< false: rows alone, more follow
};

class ProxyThread;

/// A queue of deliveries that the proxy thread empties.
class Source {
 public:
  virtual ~Source() = default;
  /// Sends all waiting deliveries by ProxyThread::deliver(). Returns whether there were any.
  virtual bool forward(ProxyThread& proxy) = 0;
};

class ProxyThread final : public PeerWatch {
 public:
  /// `heartbeat_timeout`: a rank that sends nothing for so long counts as dead.
  ProxyThread(std::unique_ptr<NodeLink> link, std::vector<int> remote_ranks,
              std::chrono::nanoseconds heartbeat_timeout);
  ~ProxyThread() override;
  const std::vector<int>& remote_ranks() const { return remote_ranks_; }

  /// Sends this rank's text of a rendezvous to all remote ranks.
  void send_text(uint64_t rendezvous, std::string_view text);
  /// Texts of the remote ranks, in the order of remote_ranks(). Errors: aborted where one of them has died or left.
  std::vector<std::string> await_texts(uint64_t rendezvous, std::chrono::nanoseconds timeout, const PeerWatch& watch);

  /// From here on deliveries to memory `number` are stored in `own`.
  void add_memory(uint64_t number, std::span<std::byte> own);
  void remove_memory(uint64_t number);
  void add_source(Source& source);
  /// Forwards the source's waiting deliveries first.
  void remove_source(Source& source);
  /// Called by sources. `rows`: the address of the first row.
  void deliver(int to, const Delivery& what, const std::byte* rows);

  /// Tells all remote ranks that this rank takes part no more, so that they do not wait for it.
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
  bool has_texts(uint64_t rendezvous);

  const std::unique_ptr<NodeLink> link_;
  const std::vector<int> remote_ranks_;
  const std::chrono::nanoseconds heartbeat_timeout_;
  std::mutex mutex_;  ///< guards all members below but for the atomics
  std::map<uint64_t, std::span<std::byte>> memories_;
  std::vector<Source*> sources_;
  std::map<uint64_t, std::map<int, std::string>> texts_;  ///< by rendezvous and rank
  uint32_t left_ = 0;                                     ///< a bit for each rank that has left
  bool has_left_ = false;                                 ///< this rank has left
  Clock::time_point next_heartbeat_;
  std::array<std::atomic<int64_t>, channel::kMaxRanks> heard_{};  ///< when, by rank
  std::atomic<int64_t> looked_{0};                                ///< when all that had come was received
  std::atomic<bool> is_stopping_{false};
  std::thread thread_;
};

}  // namespace seqtile::fabric
