// jit/fabric/core/fabric.h -- ranks that reach each other's memory: threads, processes, GPUs by one interface.
// SPDX-License-Identifier: Apache-2.0
//
// A Fabric is one rank's end. All ranks call collective functions in the same order; such a call returns when all ranks
// have made it.
// Ranks of one process must run on threads of their own, as they wait for each other.
#pragma once
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "jit/abi/channel_block.h"
#include "jit/device/device.h"

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
class Outbox {
 public:
  virtual ~Outbox() = default;
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
  /// channel's deadline.
  virtual void set_patience(std::chrono::nanoseconds patience) {
    patience_ = std::min<std::chrono::nanoseconds>(patience, std::chrono::hours(24 * 365));  // the clock adds it up
  }
  /// Collective: returns the text of every rank, by rank. Errors: aborted where a rank has died or left; timeout, which
  /// names the ranks that have not come. After a timeout this rank has left.
  virtual std::vector<std::string> all_gather(std::string_view mine) = 0;
  /// Collective: allocates `bytes` of zeros on every rank. Errors: out_of_resources.
  virtual std::unique_ptr<SymmetricMemory> allocate(size_t bytes) = 0;
  /// The function by which kernels of a CPU wait for a flag; null where the device's code waits by itself.
  virtual channel::WaitFunction wait_function() const { return nullptr; }
  virtual const void* wait_context() const { return nullptr; }
  /// The outbox of a channel with this staging, these flags and this abort word, all memory of this fabric. Null where
  /// all ranks are on one node.
  virtual std::unique_ptr<Outbox> open_outbox(const SymmetricMemory& /*staging*/, const SymmetricMemory& /*flags*/,
                                              const SymmetricMemory& /*abort*/) {
    return nullptr;
  }

 protected:
  std::chrono::nanoseconds patience() const { return patience_; }

 private:
  std::chrono::nanoseconds patience_ = std::chrono::seconds(600);
};

/// `world_size` ranks for as many threads of this process. Each rank's device has `num_threads` threads.
/// Errors: invalid_argument for sizes outside of [1, 16] and numbers of threads that no executor has.
std::vector<std::unique_ptr<Fabric>> make_thread_fabric(int world_size, int num_threads = 1);

/// `world_size` ranks on simulated GPUs of "sm_80" or "sm_90a", for as many threads of this process.
/// Errors: invalid_argument, unsupported (the target).
std::vector<std::unique_ptr<Fabric>> make_sim_fabric(std::string_view target, int world_size);

/// `world_size` ranks that share `gpu`, real or simulated, for as many threads of this process. The launches of all
/// ranks become one launch; kernels are compiled for it (GpuLaunch::ranks_in_launch). A rank's launch returns when
/// every rank has made its call. If for `patience` no further rank comes, the waiting ranks go on without the rest.
/// Nothing can be captured. The kind is "virtual:sm_80". Errors: invalid_argument; unsupported where the device is no
/// GPU. Errors of launches: invalid_argument, on all ranks, where ranks launch different kernels.
std::vector<std::unique_ptr<Fabric>> make_virtual_fabric(std::shared_ptr<Device> gpu, int world_size,
                                                         std::chrono::nanoseconds patience = std::chrono::seconds(10));

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

}  // namespace seqtile
