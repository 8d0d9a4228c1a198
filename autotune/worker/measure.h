// autotune/worker/measure.h -- interleaved rounds on rotated operands.
// SPDX-License-Identifier: Apache-2.0
//
// GPUs have the policies "cold" and "warm" (measured_call.h), and also "cold-graph" and "warm-graph", under which the
// launches of a sample are one captured graph. CPUs are timed by the host's clock, GPUs by events of a stream. The PTX
// machine is not timed: the cost model turns the counts of its launches into times.
#pragma once
#include <memory>
#include <optional>

#include "autotune/call/measured_call.h"
#include "autotune/runner.h"

namespace seqtile::autotune {

class Meter {
 public:
  /// Requires: all references outlive the meter.
  Meter(const OpDef& op, const Workload& workload, Device& device, OperandRegions& regions, bool uses_graphs = false);
  /// Returns one series a candidate, in order. `current` is set to a candidate's position before each of its launches,
  /// so that a crash can be attributed; it is -1 at the end.
  std::vector<Series> measure(std::span<const LoadedCandidate* const> candidates, const MeasurePlan& plan,
                              volatile int64_t* current);

 private:
  struct Lane;
  double sample_us(Lane& lane, int reps, double fraction);
  double sample_host_us(Lane& lane, int reps, double fraction);
  double sample_gpu_us(Lane& lane, int reps);
  double simulate_us(Lane& lane);

  const OpDef& op_;
  const Workload& workload_;
  Device& device_;
  OperandRegions& regions_;
  Operands operands_;
  const bool is_simulated_, uses_graphs_;
  std::optional<OwnedStream> stream_;  ///< GPUs
  std::unique_ptr<Event> begun_, ended_;
};

}  // namespace seqtile::autotune
