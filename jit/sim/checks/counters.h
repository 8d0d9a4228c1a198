// jit/sim/checks/counters.h -- counts of a launch's instructions, traffic and waits.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "jit/sim/decode/program.h"

namespace seqtile::sim {

struct Counters {
  uint64_t warp_instructions = 0, lane_instructions = 0;
  uint64_t by_class[kNumInstructionClasses] = {};  ///< warp instructions by InstructionClass; with Options::profile
  uint64_t mma = 0, wgmma = 0;                     ///< operations: a warp's, a warp group's
  uint64_t global_sectors = 0;                     ///< 32 bytes each, with asynchronous copies; with Options::profile
  uint64_t global_bytes = 0;                       ///< asked for; with Options::profile
  uint64_t shared_accesses = 0;                    ///< wavefronts without conflict; with Options::profile
  uint64_t bank_conflicts = 0;                     ///< wavefronts beyond them; with Options::profile
  uint64_t barrier_waits = 0;                      ///< warps that had to wait at a barrier or an mbarrier

  void add(const Counters& other);
  /// Every counter by its name.
  std::vector<std::pair<std::string, uint64_t>> named() const;
};

}  // namespace seqtile::sim
