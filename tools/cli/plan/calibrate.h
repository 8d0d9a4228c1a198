// tools/cli/plan/calibrate.h -- measures the links and devices of this machine while all ranks work at once.
// SPDX-License-Identifier: Apache-2.0
//
// Ranks share cores, caches and memory, so that each time is taken on all ranks together. The ranks meet, and each
// makes the same calls; the time of a round is the time of its slowest rank. Each result is the median of the rounds.
// The calls are kernels of this project, configured by tuning records, or by default without records.
#pragma once
#include <vector>

#include "planner/prices/link_fit.h"
#include "planner/strategies/calibration.h"
#include "tools/cli/command.h"
#include "tools/cli/ranks/ranks.h"

namespace seqtile::cli {

struct CalibrationSetup {
  std::string fabric = "threads";
  int threads = 1;  ///< threads per rank
  DType dtype = DType::f32;
  std::string cache, artifacts;  ///< empty: the user's default files
};

/// Times all-gathers over `ranks` ranks, of 4 KiB to 16 MiB per rank, or less if there are many ranks. The calls follow
/// each other, so that the start of a call hides in the wait for the end of the previous one.
std::vector<planner::GatherTime> time_gathers(const Session& session, const CalibrationSetup& setup, int ranks);

struct DeviceMeasurement {
  planner::DeviceFacts facts;  ///< facts of one rank while all ranks do the same
  autotune::Fields machine;
};
/// Measures one device. Peak: the best of a few products. Bandwidth: a gated activation over more memory than the
/// caches hold, with each byte read or written once, as the planner counts bytes. Launch: the same kernel on one row.
DeviceMeasurement measure_device(const Session& session, const CalibrationSetup& setup, int ranks);

}  // namespace seqtile::cli
