// autotune/worker/measure.h -- interleaved rounds on rotated operands.
// SPDX-License-Identifier: Apache-2.0
//
// Policy "cold": every launch gets other memory, taken in turn from regions larger than four last-level caches (up to
// 256 MiB), as weights of other layers evict ours in a server; on GPUs the L2 is flushed before each sample as well.
// Policy "warm": the same memory each time. GPUs have both also as "cold-graph" and "warm-graph", where the launches of
// a sample are one captured graph. CPUs are timed by the host's clock, GPUs by events of a stream, and the PTX machine
// not at all: what its launches counted goes through the cost model.
#pragma once
#include <map>
#include <optional>

#include "autotune/runner.h"
#include "autotune/worker/device_mirror.h"
#include "autotune/worker/launcher.h"
#include "autotune/worker/problem.h"

namespace seqtile::autotune {

/// Memory that all workloads of a worker share: one region per input dtype with normal random values, one for outputs.
class OperandRegions {
 public:
  OperandRegions(Device& device, bool cold);
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

class Meter {
 public:
  Meter(const OpDef& op, const Workload& workload, Device& device, OperandRegions& regions, bool uses_graphs = false);
  /// `current`: set to a candidate's position before each of its launches, so that a crash can be attributed.
  std::vector<Series> measure(std::span<const LoadedCandidate* const> candidates, const MeasurePlan& plan,
                              volatile int64_t* current);

 private:
  struct Lane;
  void bind(int64_t length);
  void send_filled();
  void rotate(Lane& lane);
  Lane make_lane(const LoadedCandidate& candidate, int64_t length);
  double sample_us(Lane& lane, int reps, double fraction);
  double sample_host_us(Lane& lane, int reps, double fraction);
  double sample_gpu_us(Lane& lane, int reps);
  double simulate_us(Lane& lane);

  const OpDef& op_;
  const Workload& workload_;
  Device& device_;
  OperandRegions& regions_;
  Schema schema_;
  CallLayout layout_;
  Problem problem_;
  std::vector<Pages> filled_;         ///< integer inputs with the operation's own content: one copy an argument
  std::optional<DeviceMirror> sent_;  ///< the same for kernels of a GPU
  const bool is_simulated_, uses_graphs_;
  std::optional<OwnedStream> stream_;  ///< GPUs
  std::unique_ptr<Event> begun_, ended_;
  std::vector<size_t> bytes_;
  int64_t bound_length_ = 0;
};

}  // namespace seqtile::autotune
