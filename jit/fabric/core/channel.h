// jit/fabric/core/channel.h -- the memory that fused launches of one stream share with peers: flags, staging, abort
// words.
// SPDX-License-Identifier: Apache-2.0
//
// Launches of one channel follow each other on one stream, in the same order on every rank. Kernels reach everything
// through the control block (jit/abi/channel_block.h). Any thread may use it, one at a time. A graph holds the
// addresses of the memory that the channel had when it was captured: reset() makes it void.
#pragma once
#include <array>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "jit/device/tensor.h"
#include "jit/fabric/core/fabric.h"

namespace seqtile {

struct ChannelOptions {
  int64_t capacity = 0;       ///< rows of all ranks of the longest call
  int64_t staging_bytes = 0;  ///< for one parity
  int64_t flags_per_source = 1;
  std::chrono::nanoseconds deadline = std::chrono::seconds(600);  ///< how long a wait for a peer may take
  bool awaits_peers = true;  ///< false: kernels do not wait for peers, for benchmarks of what waiting costs
  uint64_t first_epoch = 0;  ///< for tests of the wrap-around
  /// Further values that all ranks must agree on, by name. They are compared first.
  std::vector<std::pair<std::string, std::string>> agreed = {};
};

/// The reason why launches of a channel give NaN.
struct AbortRecord {
  channel::Outcome kind;
  int64_t operation, epoch, rank, peer, tile, expected, seen;
  int64_t deadline_ns = 0;  ///< how long the wait could take
  /// One line for people; `name` is the operation's.
  std::string text(std::string_view name = "operation") const;
};

class Channel {
 public:
  /// Collective. Errors, on all ranks alike: invalid_argument (options that are negative, too large, or not those of
  /// rank 0), out_of_resources.
  Channel(Fabric& fabric, const ChannelOptions& options);
  /// The same for calls of at most `max_rows` rows of all ranks together. Operations make room when they are prepared.
  Channel(Fabric& fabric, int64_t max_rows) : Channel(fabric, ChannelOptions{.capacity = max_rows}) {}
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;
  ~Channel();

  /// The last arguments of an operation that communicates: this rank's staging i8, its flags i64, and the control
  /// block, [channel::num_words] i64.
  std::array<Tensor, 3> tensors() const;
  Fabric& fabric() const { return fabric_; }
  /// This rank's staging, for both parities.
  uint64_t staging_address() const { return staging_->address(fabric_.rank()); }
  int64_t staging_bytes() const { return static_cast<int64_t>(staging_->bytes()); }
  const ChannelOptions& options() const { return options_; }
  /// Collective, when no launch is in flight: makes room for calls of at least these rows, bytes and flags, and for
  /// calls of so many rows of every operation that has been prepared. Nothing shrinks, epochs go on, the other options
  /// stay. Errors, on all ranks alike: invalid_argument (values that are not
  /// those of rank 0), unsupported (a graph has been captured), aborted (reset() the channel first), out_of_resources;
  /// the channel then stays as it was.
  void reserve(const ChannelOptions& least);
  /// Collective: gives the channel new memory, in which nothing is aborted. Waits for the launches of all ranks; epochs
  /// go on from the highest epoch of any rank. Errors: aborted (a rank has died: see survivors_of()), out_of_resources.
  void reset();

  /// Errors: invalid_argument where the launches so far were on another stream.
  void check_stream(Stream stream) const;
  /// Launches have been made on this stream.
  void note_stream(Stream stream) { stream_ = stream.handle; }
  /// A graph has been captured, which holds the addresses of this memory: the channel grows no more until reset().
  void note_capture() { is_captured_ = true; }
  /// A number for the next operation that is prepared on this channel; all ranks prepare them in the same order. `name`
  /// is for people.
  int64_t add_operation(std::string_view name);
  /// The room that operation `number` needs for calls of so many rows: reserve() asks for it.
  void note_needs(int64_t number, std::function<ChannelOptions(int64_t max_rows)> needs) {
    needs_[number] = std::move(needs);
  }
  /// The number of launches that have ended. Waits for the launches before.
  uint64_t epoch();
  /// Nothing where all is well. Where another rank gave up first, that rank's record says more than this one;
  /// `operation` is 0 where no program of this rank has waited in vain.
  std::optional<AbortRecord> abort_record();
  /// Errors where this rank or a peer has given up, with the record: timeout, aborted (a peer has given up or died),
  /// invalid_argument (ranks that called other operations or lengths, or more rows than there is room for).
  void check();

 private:
  std::array<int64_t, channel::num_words> read_block();
  int64_t read_abort_word();
  std::string name_of(const AbortRecord& record) const;
  void renew_memory(const ChannelOptions& options, uint64_t epoch);

  Fabric& fabric_;
  ChannelOptions options_;
  std::optional<void*> stream_;          ///< the stream of the launches so far
  std::vector<std::string> operations_;  ///< their names, by number
  std::map<int64_t, std::function<ChannelOptions(int64_t max_rows)>> needs_;  ///< by number
  bool is_captured_ = false;
  DeviceBuffer block_;
  std::unique_ptr<SymmetricMemory> staging_, flags_, abort_;
  std::unique_ptr<Outbox> outbox_;  ///< where some ranks are on other nodes; goes before the memory
};

}  // namespace seqtile
