// jit/sim/memory/async_copies.cpp -- cp.async: copies of single threads into shared memory.
// SPDX-License-Identifier: Apache-2.0
//
// Data moves as late as the text allows, at the wait: a read before the wait sees old data, as it may on a device.
#include <fmt/format.h>

#include <bit>
#include <cstring>

#include "jit/ptx/address.h"
#include "jit/sim/exec/cohort.h"

namespace seqtile::sim {

void Cohort::copy_async(Warp& warp, const Instruction& i, uint32_t mask) {
  Cta& cta = cta_of(warp);
  CopyOp op;
  op.pc = static_cast<uint32_t>(&i - warp.grid->program->code.data());
  if (races()) op.issued = snapshot(warp);
  for (uint32_t left = mask; left != 0; left &= left - 1) {
    const int lane = std::countr_zero(left);
    const Site site{&warp, i.line, lane};
    const uint32_t size = lanes(warp, i.slot[2])[lane];
    if (size != 4 && size != 8 && size != 16) {
      report(ReportKind::out_of_bounds, site, fmt::format("cp.async of {} bytes: 4, 8 or 16", size));
      continue;
    }
    const auto to = static_cast<uint32_t>(lane_address(warp, i, i.slot[0], lane, i.offset));
    const uint64_t from = wide_lanes(warp, i.slot[1])[lane] + static_cast<uint64_t>(i.offset2);
    uint32_t bytes = size;
    if (i.num_operands > 3) {
      const uint32_t wanted = lanes(warp, i.slot[3])[lane];
      if (wanted > size)
        report(ReportKind::out_of_bounds, site, fmt::format("cp.async of {} bytes reads {}", size, wanted));
      bytes = std::min(size, wanted);
    }
    if (shared(cta, to, size, size, site) == refused_) continue;
    if (tracks_shared())
      shared_copy_issue(
          cta, to, size,
          {static_cast<uint32_t>(warp.id), warp.clock, site, AccessKind::plain, static_cast<uint8_t>(lane)});
    op.lanes.push_back({to, bytes, from, static_cast<uint8_t>(size), static_cast<uint8_t>(lane)});
  }
  warp.copies.push_back(std::move(op));
}

void Cohort::copy_wait(Warp& warp, const Instruction& i, uint32_t mask) {
  const bool is_all = i.num_operands == 0;
  if (is_all && !warp.copies.empty()) warp.copy_groups.push_back(std::exchange(warp.copies, {}));
  land_copies(warp, is_all ? 0 : lanes(warp, i.slot[0])[std::countr_zero(mask)]);
}

void Cohort::land_copies(Warp& warp, size_t keep_groups) {
  while (warp.copy_groups.size() > keep_groups) {
    for (const CopyOp& op : warp.copy_groups.front()) land_copy(warp, op);
    warp.copy_groups.pop_front();
  }
}

void Cohort::land_copy(Warp& warp, const CopyOp& op) {
  Cta& cta = cta_of(warp);
  const Instruction& i = code(warp, op.pc);
  for (const CopyLane& lane : op.lanes) {
    const Site site{&warp, i.line, lane.lane};
    std::byte* const to = cta.shared.data() + (lane.to - kSharedBase);
    if (lane.bytes > 0) {
      const std::byte* const from = global(warp, lane.from, lane.bytes, lane.size, site, false);
      std::memcpy(to, from, lane.bytes);
      if (from != refused_) {
        if (checks_initialised_) note_poison_read(warp, lane.from, lane.bytes, site);
        if (races()) global_access(warp, lane.from, lane.bytes, {false, false, Scope::cta}, *op.issued, site);
        if (context_.options.profile) count_sectors(lane.from, lane.bytes);
      }
    }
    if (lane.bytes < lane.size) std::memset(to + lane.bytes, 0, lane.size - lane.bytes);
    if (tracks_shared())
      shared_copy_land(cta, lane.to, lane.size,
                       {static_cast<uint32_t>(warp.id), warp.clock, site, AccessKind::plain, lane.lane});
  }
}

/// The copies so far arrive on the mbarrier when they are done; here: at once, after the data.
void Cohort::copy_arrive(Warp& warp, const Instruction& i, uint32_t mask) {
  if (!warp.copies.empty()) warp.copy_groups.push_back(std::exchange(warp.copies, {}));
  land_copies(warp, 0);
  for (uint32_t left = mask; left != 0; left &= left - 1) {
    const int lane = std::countr_zero(left);
    const Site site{&warp, i.line, lane};
    Mbarrier* barrier = find_mbarrier(cta_of(warp), lane_address(warp, i, i.slot[0], lane, i.offset), site,
                                      races() ? &warp.clock : nullptr);
    if (barrier == nullptr || !i.flag) continue;
    --barrier->pending;
    if (races()) join(barrier->clock, warp.clock);
    check_mbarrier(*barrier, site);
  }
  if (races()) publish(warp);
  ++events_;
}

}  // namespace seqtile::sim
