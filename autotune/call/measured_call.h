// autotune/call/measured_call.h -- the memory of measured launches, and how it changes from launch to launch.
// SPDX-License-Identifier: Apache-2.0
//
// Policy "cold": every launch gets other memory, taken in turn from regions of four last-level caches (32 to 256 MiB),
// because in a server other layers evict a layer's weights. On GPUs each sample also begins with a flush of the L2.
// Policy "warm": every launch gets the same memory.
#pragma once
#include <map>
#include <optional>
#include <span>

#include "autotune/call/device_mirror.h"
#include "autotune/call/launcher.h"
#include "autotune/call/problem.h"

namespace seqtile::autotune {

/// Memory that all workloads of a worker share: one region per input dtype with normal random values (zeros for
/// integers), and one region for outputs.
class OperandRegions {
 public:
  /// `num_sharing`: number of ranks that share the last-level cache, each with regions of its own.
  OperandRegions(Device& device, bool cold, int num_sharing = 1);
  /// Grows the region of `dtype`, or of outputs (no dtype), if the tensors of one call, `bytes` bytes together, could
  /// overlap in it. Addresses taken from a region before it grows become invalid. Errors: out_of_resources.
  void reserve(std::optional<DType> dtype, size_t bytes);
  /// The next `bytes` bytes of the region; the begin of the region follows its end. Requires: reserve().
  void* take(std::optional<DType> dtype, size_t bytes);
  /// Warm: the next take() from each region starts at the region's begin. Cold: no effect.
  void restart();
  /// Cold: evicts all lines from the L2 of a GPU, in stream order. Warm: no effect.
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

/// The tensors of one workload's calls. Integer inputs, such as indices, keep their memory and get the operation's own
/// content; rotate() changes the memory of all other tensors.
class Operands {
 public:
  Operands(const OpDef& op, const Workload& workload, Device& device, OperandRegions& regions);
  /// Binds the representative call at `length`.
  void bind(int64_t length);
  /// Binds a rank's call at `length`; the last arguments are the channel's tensors `of_channel`.
  void bind(int64_t length, const RankCall& rank, std::span<const Tensor> of_channel);
  int64_t length() const { return length_; }
  const std::vector<int64_t>& symbols() const { return problem_.symbols; }
  /// The bound call of `candidate`, with zeroed workspaces of its own.
  MeasuredCall make_call(const LoadedCandidate& candidate) const;
  /// Gives the call the next memory of the regions.
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
  std::vector<bool> is_fixed_;        ///< by argument: rotate() keeps its memory
  std::vector<Pages> filled_;         ///< by argument: memory of an integer input, else empty
  std::optional<DeviceMirror> sent_;  ///< of filled_, for kernels of a GPU
  std::vector<size_t> bytes_;         ///< by argument
  int64_t length_ = 0;
};

}  // namespace seqtile::autotune
