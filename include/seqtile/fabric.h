// include/seqtile/fabric.h -- ranks that reach each other's memory, the channels of their launches, and timelines of
// these.
// SPDX-License-Identifier: Apache-2.0
//
// A Fabric is one rank's end. All ranks call collective functions in the same order; such a call returns when all ranks
// have made it.
// Ranks of one process must run on threads of their own, as they wait for each other.
#pragma once
#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "seqtile/abi.h"
#include "seqtile/device.h"
#include "seqtile/tensor.h"

namespace seqtile {

/// A buffer of the same size on every rank, which the kernels of all ranks reach.
class SymmetricMemory {
 public:
  virtual ~SymmetricMemory() = default;
  /// The address at which this rank's kernels reach the buffer of `rank`.
  uint64_t address(int rank) const { return addresses_[static_cast<size_t>(rank)]; }
  size_t bytes() const { return bytes_; }

 protected:
  SymmetricMemory(std::vector<uint64_t> addresses, size_t bytes) : addresses_(std::move(addresses)), bytes_(bytes) {}

 private:
  std::vector<uint64_t> addresses_;
  size_t bytes_;
};

/// The queue in which a channel's kernels leave chunks for ranks of other nodes.
class ProxyQueue {
 public:
  virtual ~ProxyQueue() = default;
  virtual uint64_t address() const = 0;
  virtual int64_t num_entries() const = 0;
  /// A bit for each rank of another node.
  virtual uint32_t remote_ranks() const = 0;
};

class Fabric {
 public:
  virtual ~Fabric() = default;
  virtual int rank() const = 0;
  virtual int world_size() const = 0;
  /// "threads": part of the key of every tuning record.
  virtual std::string kind() const = 0;
  virtual Device& device() = 0;
  /// The timeout of this rank's collective calls; 600 s where it is not set. Kernels have a timeout of their own, the
  /// channel's timeout.
  virtual void set_timeout(std::chrono::nanoseconds timeout) {
    timeout_ = std::min<std::chrono::nanoseconds>(timeout, std::chrono::hours(24 * 365));  // the clock adds it up
  }
  /// Collective: returns the text of every rank, by rank. Errors: aborted where a rank has died or left; timeout, which
  /// names the ranks that have not come. After a timeout this rank has left.
  virtual std::vector<std::string> all_gather(std::string_view mine) = 0;
  /// Collective: allocates `bytes` of zeros on every rank. Errors: out_of_resources.
  virtual std::unique_ptr<SymmetricMemory> allocate(size_t bytes) = 0;
  /// The function by which kernels of a CPU wait for a flag; null where the device's code waits by itself.
  virtual channel::WaitFunction wait_function() const { return nullptr; }
  virtual const void* wait_context() const { return nullptr; }
  /// The proxy queue of a channel with this staging, these flags and this abort word, all memory of this fabric. Null
  /// where all ranks are on one node.
  virtual std::unique_ptr<ProxyQueue> open_proxy_queue(const SymmetricMemory& /*staging*/,
                                                       const SymmetricMemory& /*flags*/,
                                                       const SymmetricMemory& /*abort*/) {
    return nullptr;
  }

 protected:
  std::chrono::nanoseconds timeout() const { return timeout_; }

 private:
  std::chrono::nanoseconds timeout_ = std::chrono::seconds(600);
};

/// `world_size` ranks for as many threads of this process. Each rank's device has `num_threads` threads.
/// Errors: invalid_argument for sizes outside of [1, 16] and numbers of threads that no executor has.
std::vector<std::unique_ptr<Fabric>> make_thread_fabric(int world_size, int num_threads = 1);

/// `world_size` ranks on simulated GPUs of "sm_80" or "sm_90a", for as many threads of this process.
/// Errors: invalid_argument, unsupported (the target).
std::vector<std::unique_ptr<Fabric>> make_sim_fabric(std::string_view target, int world_size);

/// `world_size` ranks that share `gpu`, real or simulated, for as many threads of this process. The launches of all
/// ranks become one launch; kernels are compiled for it (GpuLaunch::ranks_in_launch). A rank's launch returns when
/// every rank has made its call. If for `timeout` no further rank comes, the waiting ranks go on without the rest.
/// Nothing can be captured. The kind is "virtual:sm_80". Errors: invalid_argument; unsupported where the device is no
/// GPU. Errors of launches: invalid_argument, on all ranks, where ranks launch different kernels.
std::vector<std::unique_ptr<Fabric>> make_virtual_fabric(std::shared_ptr<Device> gpu, int world_size,
                                                         std::chrono::nanoseconds timeout = std::chrono::seconds(10));

/// Ranks that are processes: makes the memory that the ranks will share. Returns a descriptor for them to inherit; the
/// caller closes it when all ranks have joined. Errors: invalid_argument, out_of_resources.
int make_process_world(int world_size);
/// Makes this process rank `rank` of the world of `descriptor`; returns when all ranks have joined.
/// Errors: invalid_argument (no world's descriptor, a rank that is taken or too large), timeout (names the ranks that
/// have not come), aborted (a rank has ended before).
std::unique_ptr<Fabric> join_process_fabric(int descriptor, int rank, int num_threads = 1,
                                            std::chrono::nanoseconds timeout = std::chrono::seconds(60));
/// Collective among the processes that live: a fabric of these processes alone, numbered in their old order, each with
/// the device that it has. The new fabric needs a channel and handles of its own; the old fabric and all that was made
/// from it may go.
/// Errors: unsupported (other kinds: threads and simulated GPUs do not die alone; ranks of several nodes), timeout
/// (names the ranks that live and have not come), out_of_resources after 15 times.
std::unique_ptr<Fabric> survivors_of(Fabric& fabric, std::chrono::nanoseconds timeout = std::chrono::seconds(60));

// make_cuda_fabric() puts ranks on several GPUs of one machine, which reach each other's memory. It is not proven yet:
// it has run against a library that plays the driver, never on a machine with several GPUs.

/// Collective: gives each rank of `host_fabric` (threads of a process, or processes, also those of MPI) a GPU of its
/// own; this rank gets cuda:`gpu`. Threads reach peers by peer access, processes by CUDA's memory handles. The kind
/// names the code, "cuda:sm_90a". Kernels wait for each other, so no two ranks share a GPU. If a process dies, its
/// peers learn it from the channel's timeout. Errors, on all ranks alike: driver (there is none, or no such GPU),
/// unsupported (GPUs that cannot reach each other, some ranks in one process and some not), invalid_argument (GPUs of
/// different kinds, two ranks on one).
std::unique_ptr<Fabric> make_cuda_fabric(std::unique_ptr<Fabric> host_fabric, int gpu);

// A Channel is the memory that fused launches of one stream share with peers: flags, staging, abort words.
//
// Launches of one channel follow each other on one stream, in the same order on every rank. Kernels reach everything
// through the control block (docs/seqpar/protocol.md). Any thread may use a channel, one at a time. A graph holds the
// addresses of the memory that the channel had when it was captured: reset() makes it void.

struct ChannelOptions {
  int64_t capacity = 0;       ///< rows of all ranks of the longest call
  int64_t staging_bytes = 0;  ///< for one parity
  int64_t flags_per_source = 1;
  std::chrono::nanoseconds timeout = std::chrono::seconds(600);  ///< how long a wait for a peer may take
  bool awaits_peers = true;  ///< false: kernels do not wait for peers, for benchmarks of what waiting costs
  uint64_t first_epoch = 0;  ///< for tests of the wrap-around
  /// Further values that all ranks must agree on, by name. They are compared first.
  std::vector<std::pair<std::string, std::string>> agreed = {};
};

/// The reason why launches of a channel give NaN.
struct AbortRecord {
  channel::Outcome kind;
  int64_t operation, epoch, rank, peer, tile, expected, seen;
  int64_t timeout_ns = 0;  ///< how long the wait could take
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
  /// stay. Errors, on all ranks alike: invalid_argument (values that are not those of rank 0), unsupported (a graph has
  /// been captured), aborted (reset() the channel first), out_of_resources; the channel then stays as it was.
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
  /// The room that operation `op_id` needs for calls of so many rows: reserve() asks for it.
  void note_needs(int64_t op_id, std::function<ChannelOptions(int64_t max_rows)> needs) {
    needs_[op_id] = std::move(needs);
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
  std::vector<int64_t> read_block();
  int64_t read_abort_word();
  std::string name_of(const AbortRecord& record) const;
  void renew_memory(const ChannelOptions& options, uint64_t epoch);

  Fabric& fabric_;
  ChannelOptions options_;
  std::optional<void*> stream_;                                               ///< the stream of the launches so far
  std::vector<std::string> operations_;                                       ///< their names, by number
  std::map<int64_t, std::function<ChannelOptions(int64_t max_rows)>> needs_;  ///< by number
  bool is_captured_ = false;
  DeviceBuffer block_;
  std::unique_ptr<SymmetricMemory> staging_, flags_, abort_;
  std::unique_ptr<ProxyQueue> proxy_queue_;  ///< where some ranks are on other nodes; goes before the memory
};

// A timeline shows when the kernels of a channel do what: programs begin and end, flags are sent, awaited, arrive.
//
// While a channel has a Timeline, its kernels write events into a ring in device memory. Without a Timeline they read
// one word and write nothing. All ranks of a machine use one clock. docs/seqpar/guide.md#timeline

struct TimelineEvent {
  int64_t time_ns, epoch;
  std::string role;  ///< the program's role, as its protocol names it; "last" awaits the rest
  timeline::Kind kind;
  int64_t phase, peer, chunk;  ///< events of flags only
  int64_t program;             ///< its place in the grid
};

class Timeline {
 public:
  /// Later launches write events, until the channel is reset or grows. The newest `num_events` events are kept. A
  /// channel has one timeline at a time, and outlives it. Waits for the launches before.
  /// Errors: invalid_argument (num_events < 1), out_of_resources.
  Timeline(Channel& channel, int64_t num_events);
  Timeline(const Timeline&) = delete;
  Timeline& operator=(const Timeline&) = delete;
  ~Timeline();
  /// Oldest first. Waits for the launches before.
  std::vector<TimelineEvent> events() const;

 private:
  void tell_kernels(uint64_t address);

  Channel& channel_;
  const int64_t num_events_;
  DeviceBuffer buffer_;
};

/// Chrome's trace format, which Perfetto opens: a process for each rank, in it a track for each program at a time, and
/// arrows from the flags that are sent to where they are awaited.
std::string chrome_trace(std::span<const std::vector<TimelineEvent>> ranks);
/// The events as an SVG picture; the tooltip of a span names it.
std::string timeline_svg(std::span<const std::vector<TimelineEvent>> ranks);

}  // namespace seqtile
