// autotune/call/measured_call.h -- the memory of measured launches, and how it changes from one to the next.
// SPDX-License-Identifier: Apache-2.0
//
// Policy "cold": every launch gets other memory, taken in turn from regions larger than four last-level caches (up to
// 256 MiB), as weights of other layers evict ours in a server; on GPUs the L2 is flushed before each sample as well.
// Policy "warm": the same memory each time.
#pragma once
#include <map>
#include <optional>
#include <span>

#include "autotune/call/device_mirror.h"
#include "autotune/call/launcher.h"
#include "autotune/call/problem.h"

namespace seqtile::autotune {

/// Memory that all workloads of a worker share: one region per input dtype with normal random values, one for outputs.
class OperandRegions {
 public:
  /// `num_sharing`: ranks that share the last-level cache, each with regions of its own.
  OperandRegions(Device& device, bool cold, int num_sharing = 1);
  /// Room for a call that takes `bytes` of the dtype's region in all, or of the outputs' (no dtype): what it takes does
  /// not overlap. What was taken of a region before is lost where the region grows.
  void reserve(std::optional<DType> dtype, size_t bytes);
  /// The next `bytes` of the region; it starts over at the end.
  void* take(std::optional<DType> dtype, size_t bytes);
  /// The next call of take() for each region starts at its beginning.
  void restart();
  /// Cold: evicts everything from the L2 of a GPU, in stream order.
  void flush(Stream stream);

 private:
  struct Region {
    Pages pages;          ///< on a CPU
    DeviceBuffer buffer;  ///< on a GPU
    size_t bytes = 0, next = 0;
    std::byte* data() const { return pages.data() ? pages.data() : static_cast<std::byte*>(buffer.data()); }
  };
  void grow(Region& region, std::optional<DType> dtype, size_t bytes);

  Device& device_;
  bool cold_;
  size_t size_;
  DeviceBuffer flushed_;
  std::map<std::optional<DType>, Region> regions_;
};

/// A candidate with the argument block of one call.
struct MeasuredCall {
  const LoadedCandidate* candidate = nullptr;
  Grid grid{};
  std::vector<DeviceBuffer> workspaces;
  KernelCall call;
};

/// The tensors of one workload's calls. What an operation fills by itself and is no float, as indices, stays where it
/// is; all else changes with rotate().
class Operands {
 public:
  Operands(const OpDef& op, const Workload& workload, Device& device, OperandRegions& regions);
  /// The representative call at `length`.
  void bind(int64_t length);
  /// A rank's call at `length`, on its channel.
  void bind(int64_t length, const RankCall& rank, std::span<const Tensor> of_channel);
  int64_t length() const { return length_; }
  const std::vector<int64_t>& symbols() const { return problem_.symbols; }
  /// The bound call, with zeroed workspaces of its own.
  MeasuredCall make_call(const LoadedCandidate& candidate) const;
  /// Gives the call other memory.
  void rotate(MeasuredCall& call);

 private:
  void place(std::span<const Tensor> of_channel);
  void send_filled();

  const OpDef& op_;
  const Workload& workload_;
  Device& device_;
  OperandRegions& regions_;
  Schema schema_;
  CallLayout layout_;
  Problem problem_;
  std::vector<bool> is_fixed_;        ///< by argument
  std::vector<Pages> filled_;         ///< content of the operation's own: one copy an argument
  std::optional<DeviceMirror> sent_;  ///< the same for kernels of a GPU
  std::vector<size_t> bytes_;
  int64_t length_ = 0;
};

}  // namespace seqtile::autotune
