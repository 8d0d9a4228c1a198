// jit/sim/exec/shared_races.cpp -- races, missing waits and missing fences in shared memory, exact (shared_shadow.h).
// SPDX-License-Identifier: Apache-2.0
//
// Strong accesses (atomics, flags) do not race with each other. While only strong accesses touch a part of memory,
// their epochs stand among its readers, so that a plain access must be ordered after each of them. The part's writer is
// the last plain writer, after which each strong access must be ordered. Within one warp a lane's access is ordered
// after another lane's only by a barrier, bar.warp.sync included: each barrier publishes the warp's clock, so an access
// of the same epoch by another lane is not ordered.
#include <fmt/format.h>

#include "jit/ptx/address.h"
#include "jit/sim/exec/cohort.h"

namespace seqtile::sim {
namespace {

bool are_two_lanes(uint8_t before, uint8_t now) {
  return before != kNoLane && now != kNoLane && (before != now || before == kSeveralLanes);
}

std::string lane_name(uint8_t lane) { return lane == kSeveralLanes ? "another lane" : fmt::format("lane {}", lane); }

}  // namespace

bool Cohort::is_tracked(const Cta& cta, uint32_t address, uint32_t bytes) const {
  return uint64_t{address - kSharedBase} + bytes <= cta.shadow.bytes();
}

/// A reader that is ordered before `clock`, or a writer among the strong accesses.
bool Cohort::are_readers_before(SharedShadow& shadow, const ShadowCell& cell, uint32_t me, const Clock& clock,
                                uint32_t& offender) const {
  if (cell.read == 0 || shadow.is_known_ordered(cell, me)) return true;
  if ((cell.read & ShadowCell::kMany) == 0) {
    offender = cell.read;
    return is_before(cell.read, clock);
  }
  for (const uint32_t reader : shadow.readers(cell)) {
    offender = reader;
    if (!is_before(reader, clock)) return false;
  }
  shadow.note_ordered(cell, me);
  return true;
}

void Cohort::note_reader(Cta& cta, ShadowCell& cell, uint32_t me, const SharedAccess& access) {
  const bool is_same = cell.read == me;
  // a collective read is over for all lanes when one goes on
  const uint8_t lane = access.lane == kSeveralLanes ? kNoLane : access.lane;
  cell.read_lane = is_same && cell.read_lane != lane ? kSeveralLanes : lane;
  cell.read_line = static_cast<uint16_t>(access.site.line);
  if (!is_same) cta.shadow.add_reader(cell, me, [&](uint32_t reader) { return is_before(reader, access.clock); });
}

void Cohort::shared_read(Cta& cta, uint32_t address, uint32_t bytes, const SharedAccess& access) {
  if (!is_tracked(cta, address, bytes)) return;
  const uint32_t me = make_epoch(access.thread, access.clock[access.thread]);
  cta.shadow.each(address - kSharedBase, bytes, false, [&](ShadowCell& cell, uint32_t at) {
    // the same reader again, and nobody has written since
    const bool is_plain = (cell.flags & ~ShadowCell::kAsync) == 0;
    if (cell.read == me && cell.pending == 0 && is_plain && (cell.write != me || cell.read_lane == access.lane)) {
      if (cell.read_lane != access.lane) cell.read_lane = kSeveralLanes;
      return;
    }
    check_shared_read(cta, cell, at, me, access);
    note_reader(cta, cell, me, access);
  });
}

void Cohort::check_shared_read(Cta& cta, ShadowCell& cell, uint32_t at, uint32_t me, const SharedAccess& access) {
  const Site& site = access.site;
  if (cell.pending != 0 && checks_flight_)
    report(ReportKind::missing_wait, site,
           fmt::format("shared + {} has a cp.async of {} in flight", at, describe_thread(cell.pending - 1u)));
  if (cell.flags & ShadowCell::kMbarrier) return report_mbarrier_access(site, at);
  const bool is_strong = (cell.flags & ShadowCell::kStrong) != 0;
  if (cell.write == 0 && !is_strong) {
    if (cell.pending == 0 && checks_initialised_)
      report(ReportKind::uninitialised_memory, site, fmt::format("shared read at shared + {}", at));
    return;
  }
  if (is_strong && access.kind != AccessKind::strong) {
    uint32_t offender = 0;
    if (races() && !are_readers_before(cta.shadow, cell, me, access.clock, offender))
      report(ReportKind::race, site,
             fmt::format("reads shared + {}, which {} accesses atomically at PTX line {}: not ordered", at,
                         describe_thread(epoch_thread(offender)), cell.read_line));
    // one of them stands for all from here on
    cell.write = cell.read & ShadowCell::kMany ? cta.shadow.readers(cell).front() : cell.read;
    cell.write_line = cell.read_line;
    cell.write_lane = kNoLane;
    cell.flags = 0;
    cell.read = 0;
    return check_proxy(cell, at, access);
  }
  if (cell.write == 0) return;
  if (!races()) return check_proxy(cell, at, access);
  if (!is_before(cell.write, access.clock))
    report(ReportKind::race, site,
           fmt::format("reads shared + {}, which {} wrote at PTX line {}: not ordered", at,
                       describe_thread(epoch_thread(cell.write)), cell.write_line));
  else if (cell.write == me && checks_lanes() && are_two_lanes(cell.write_lane, access.lane))
    report(ReportKind::race, site,
           fmt::format("reads shared + {}, which {} of the same warp wrote at PTX line {}: not ordered (bar.warp.sync "
                       "is missing)",
                       at, lane_name(cell.write_lane), cell.write_line));
  else check_proxy(cell, at, access);
}

/// Generic stores are visible to asynchronous readers only after fence.proxy.async.
void Cohort::check_proxy(const ShadowCell& cell, uint32_t at, const SharedAccess& access) {
  if (access.kind != AccessKind::async || !checks_flight_ || (cell.flags & ShadowCell::kAsync) != 0) return;
  const uint32_t writer = epoch_thread(cell.write);
  if (writer < warps_.size() && static_cast<uint8_t>(warps_[writer].proxy_fences) == cell.proxy_fences)
    report(
        ReportKind::missing_fence, access.site,
        fmt::format("shared + {} was written at PTX line {} without fence.proxy.async after it", at, cell.write_line));
}

void Cohort::report_mbarrier_access(const Site& site, uint32_t at) {
  report(ReportKind::mbarrier, site,
         fmt::format("shared + {} is part of an mbarrier, which only mbarrier "
                     "instructions may touch",
                     at));
}

void Cohort::check_shared_write(Cta& cta, ShadowCell& cell, uint32_t at, const SharedAccess& access) {
  const Site& site = access.site;
  if (cell.pending != 0 && cell.pending != access.thread + 1 && checks_flight_)
    report(
        ReportKind::missing_wait, site,
        fmt::format("writes shared + {}, where a cp.async of {} is in flight", at, describe_thread(cell.pending - 1u)));
  if (cell.flags & ShadowCell::kMbarrier) report_mbarrier_access(site, at);
  if (!races()) return;
  const uint32_t me = make_epoch(access.thread, access.clock[access.thread]);
  if (cell.write != 0 && !is_before(cell.write, access.clock))
    return report(ReportKind::race, site,
                  fmt::format("writes shared + {} over what {} wrote at PTX line {}: not ordered", at,
                              describe_thread(epoch_thread(cell.write)), cell.write_line));
  uint32_t offender = 0;
  if (!are_readers_before(cta.shadow, cell, me, access.clock, offender))
    return report(ReportKind::race, site,
                  fmt::format("writes shared + {}, which {} {} at PTX line {}: not ordered", at,
                              describe_thread(epoch_thread(offender)),
                              cell.flags & ShadowCell::kStrong ? "accesses atomically" : "reads", cell.read_line));
  if (!checks_lanes()) return;
  if (cell.read == me && are_two_lanes(cell.read_lane, access.lane))
    report(ReportKind::race, site,
           fmt::format("writes shared + {}, which {} of the same warp reads at PTX line {}: not ordered (bar.warp.sync "
                       "is missing)",
                       at, lane_name(cell.read_lane), cell.read_line));
  // stores of one instruction are compared by value: check_same_values()
  if (cell.write == me && cell.write_line != site.line && are_two_lanes(cell.write_lane, access.lane))
    report(ReportKind::race, site,
           fmt::format("writes shared + {} over what {} of the same warp wrote at PTX line {}: not ordered "
                       "(bar.warp.sync is missing)",
                       at, lane_name(cell.write_lane), cell.write_line));
}

void Cohort::strong_write(Cta& cta, ShadowCell& cell, uint32_t at, uint32_t me, const SharedAccess& access) {
  if ((cell.flags & ShadowCell::kStrong) == 0) {
    check_shared_write(cta, cell, at, access);
    cell.flags = ShadowCell::kStrong;
    cell.read = 0;
  } else if (races() && cell.write != 0 && !is_before(cell.write, access.clock)) {
    report(ReportKind::race, access.site,
           fmt::format("accesses shared + {} atomically, which {} wrote at PTX line {}: not ordered", at,
                       describe_thread(epoch_thread(cell.write)), cell.write_line));
  }
  note_reader(cta, cell, me, access);
}

void Cohort::shared_write(Cta& cta, uint32_t address, uint32_t bytes, const SharedAccess& access) {
  if (!is_tracked(cta, address, bytes)) return;
  const uint32_t me = make_epoch(access.thread, access.clock[access.thread]);
  const auto fences = static_cast<uint8_t>(access.thread < warps_.size() ? warps_[access.thread].proxy_fences : 0);
  cta.shadow.each(address - kSharedBase, bytes, true, [&](ShadowCell& cell, uint32_t at) {
    if (access.kind == AccessKind::strong) return strong_write(cta, cell, at, me, access);
    if (cell.write != me || cell.read != 0 || cell.pending != 0 || cell.flags != 0 || checks_lanes())
      check_shared_write(cta, cell, at, access);
    cell.write = me;
    cell.read = 0;
    cell.write_line = static_cast<uint16_t>(access.site.line);
    cell.write_lane = access.lane;
    cell.proxy_fences = fences;
    cell.flags = access.kind == AccessKind::async ? ShadowCell::kAsync : 0;
  });
}

/// A cp.async conflicts from its issue on, but its data is there only after the wait.
void Cohort::shared_copy_issue(Cta& cta, uint32_t address, uint32_t bytes, const SharedAccess& access) {
  if (!is_tracked(cta, address, bytes)) return;
  cta.shadow.each(address - kSharedBase, bytes, false, [&](ShadowCell& cell, uint32_t at) {
    check_shared_write(cta, cell, at, access);
    cell.pending = static_cast<uint16_t>(access.thread + 1);
  });
}

void Cohort::shared_copy_land(Cta& cta, uint32_t address, uint32_t bytes, const SharedAccess& access) {
  if (!is_tracked(cta, address, bytes)) return;
  const uint32_t me = make_epoch(access.thread, access.clock[access.thread]);
  const auto fences = static_cast<uint8_t>(warps_[access.thread].proxy_fences);
  cta.shadow.each(address - kSharedBase, bytes, true, [&](ShadowCell& cell, uint32_t) {
    cell.write = me;
    cell.read = 0;
    cell.write_line = static_cast<uint16_t>(access.site.line);
    cell.write_lane = access.lane;
    cell.proxy_fences = fences;
    cell.pending = 0;
    cell.flags = 0;
  });
}

/// Marks or frees the eight bytes of an mbarrier.
void Cohort::shared_mbarrier(Cta& cta, uint32_t address, bool is_alive, const SharedAccess& access) {
  if (!is_tracked(cta, address, 8)) return;
  if (is_alive) shared_write(cta, address, 8, access);
  cta.shadow.each(address - kSharedBase, 8, false, [&](ShadowCell& cell, uint32_t) {
    cell = ShadowCell();
    if (is_alive) cell.flags = ShadowCell::kMbarrier;
  });
}

}  // namespace seqtile::sim
