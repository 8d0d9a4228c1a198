// tools/cli/serve/record_times.h -- times of a stream of calls by the measured records: tuned, by default, and padded.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "seqtile/device.h"
#include "seqtile/stores.h"
#include "seqtile/tuner.h"
#include "tools/cli/serve/lookup_stream.h"

namespace seqtile::cli {

/// Sums over all planned calls of one operation.
struct OperationTimes {
  std::string label;
  int64_t calls = 0;
  double tuned_s = 0;    ///< exact lengths, with recorded configurations
  double default_s = 0;  ///< exact lengths, with the default configuration, measured in the same rounds
  double padded_s = 0;   ///< lengths padded to the next power of two, with recorded configurations
  double speedup() const { return tuned_s > 0 ? default_s / tuned_s : 1; }
};

/// A bucket is measured at its hi; times of lengths between two such points are interpolated.
std::vector<OperationTimes> record_times(const autotune::Registry& registry,
                                         std::span<const ServedOperation> operations,
                                         std::span<const CountedCall> calls, Device& device, cache::TuningStore& store);

}  // namespace seqtile::cli
