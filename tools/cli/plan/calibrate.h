// tools/cli/plan/calibrate.h -- what links and devices of this machine reach while all its ranks work at once.
// SPDX-License-Identifier: Apache-2.0
//
// Ranks share cores, caches and memory, so every time is taken on all of them together: they meet, each makes the same
// calls, and the slowest one's time is that of the round. What is told is the median of the rounds. Our own kernels are
// measured, as records have tuned them, else by default.
#pragma once
#include <vector>

#include "planner/prices/link_fit.h"
#include "planner/strategies/calibration.h"
#include "tools/cli/command.h"
#include "tools/cli/ranks/ranks.h"

namespace seqtile::cli {

struct CalibrationSetup {
  std::string fabric = "threads";
  int threads = 1;  ///< of a rank
  DType dtype = DType::f32;
  std::string cache, artifacts;  ///< empty: the user's default files
};

/// All-gathers over `ranks` ranks, of 4 KiB to 16 MiB a rank, less where there are many: one after another, so that
/// the next one's start hides in the wait for this one's end.
std::vector<planner::GatherTime> time_gathers(const Session& session, const CalibrationSetup& setup, int ranks);

struct DeviceMeasurement {
  planner::DeviceFacts facts;  ///< of one rank while all of them do the same
  autotune::Fields machine;
};
/// Peak: the best of a few products. Bandwidth: a gated activation over more memory than the caches have, its bytes as
/// the planner counts them, each read or written once. Launch: the same kernel on one row.
DeviceMeasurement measure_device(const Session& session, const CalibrationSetup& setup, int ranks);

}  // namespace seqtile::cli
