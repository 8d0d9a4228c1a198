// autotune/worker/measure.h -- interleaved rounds on rotated operands.
// SPDX-License-Identifier: Apache-2.0
//
// Policy "cold": every launch gets other memory, taken in turn from regions larger than four last-level caches (up to
// 256 MiB), as weights of other layers evict ours in a server. Policy "warm": the same memory each time.
#pragma once
#include <map>

#include "autotune/runner.h"
#include "autotune/worker/launcher.h"
#include "autotune/worker/problem.h"

namespace seqtile::autotune {

/// Memory that all workloads of a worker share: one region per input dtype with normal random values, one for outputs.
class OperandRegions {
 public:
  OperandRegions(bool cold, int64_t last_level_cache_bytes);
  /// The next `bytes` of the dtype's region, or of the outputs' (no dtype); it starts over at the end.
  void* take(std::optional<DType> dtype, size_t bytes);
  /// The next call of take() for each region starts at its beginning.
  void restart();

 private:
  struct Region {
    Pages pages;
    size_t next = 0;
  };
  bool cold_;
  size_t size_;
  std::map<std::optional<DType>, Region> regions_;
};

class Meter {
 public:
  Meter(const OpDef& op, const Workload& workload, Device& device, OperandRegions& regions);
  /// `current`: set to a candidate's position before each of its launches, so that a crash can be attributed.
  std::vector<Series> measure(std::span<const LoadedCandidate* const> candidates, const MeasurePlan& plan,
                              volatile int64_t* current);

 private:
  struct Lane;
  void bind(int64_t length);
  void rotate(Lane& lane);
  double sample_us(Lane& lane, int reps, double fraction);

  const OpDef& op_;
  const Workload& workload_;
  Device& device_;
  OperandRegions& regions_;
  Schema schema_;
  CallLayout layout_;
  Problem problem_;
  std::vector<Pages> filled_;  ///< integer inputs with the operation's own content: one copy an argument
  std::vector<size_t> bytes_;
  int64_t bound_length_ = 0;
};

}  // namespace seqtile::autotune
