// jit/sim/checks/counters.cpp -- see counters.h.
// SPDX-License-Identifier: Apache-2.0
#include "jit/sim/checks/counters.h"

#include <iterator>

namespace seqtile::sim {
namespace {

constexpr const char* kClasses[] = {"integer",  "floating", "move",  "control", "memory",
                                    "exchange", "barrier",  "async", "matrix",  "tensor"};
static_assert(std::size(kClasses) == kNumInstructionClasses);

}  // namespace

void Counters::add(const Counters& other) {
  warp_instructions += other.warp_instructions, lane_instructions += other.lane_instructions;
  for (int c = 0; c < kNumInstructionClasses; ++c) by_class[c] += other.by_class[c];
  mma += other.mma, wgmma += other.wgmma;
  global_sectors += other.global_sectors, global_bytes += other.global_bytes;
  shared_accesses += other.shared_accesses, bank_conflicts += other.bank_conflicts;
  barrier_waits += other.barrier_waits;
}

std::vector<std::pair<std::string, uint64_t>> Counters::named() const {
  std::vector<std::pair<std::string, uint64_t>> result = {{"warp_instructions", warp_instructions},
                                                          {"lane_instructions", lane_instructions}};
  for (size_t i = 0; i < std::size(kClasses); ++i)
    result.emplace_back(std::string(kClasses[i]) + "_instructions", by_class[i]);
  result.insert(result.end(), {{"mma", mma},
                               {"wgmma", wgmma},
                               {"global_sectors", global_sectors},
                               {"global_bytes", global_bytes},
                               {"shared_accesses", shared_accesses},
                               {"bank_conflicts", bank_conflicts},
                               {"barrier_waits", barrier_waits}});
  return result;
}

}  // namespace seqtile::sim
