// jit/sim/exec/global_races.cpp -- races in global memory, from the last accesses of every 16 bytes (memory_map.h).
// SPDX-License-Identifier: Apache-2.0
//
// Two accesses race when one of them writes, neither is ordered before the other, and they are not both strong with
// scopes that contain each other. CTAs of different clusters know nothing of each other until a message passes
// (synchronisation.cpp). Accesses of one warp are not compared with each other.
#include <fmt/format.h>

#include <algorithm>

#include "jit/sim/exec/cohort.h"

namespace seqtile::sim {
namespace {

constexpr std::string_view kScopeNames[] = {".cta", ".cluster", ".gpu", ".sys"};

}  // namespace

/// Whether `scope`, as warp `a` sees it, contains the thread.
bool Cohort::includes(Scope scope, const Warp& a, uint32_t thread) const {
  if (scope == Scope::sys) return true;
  const Warp& b = warps_[thread];
  if (scope == Scope::gpu) return a.grid->device == b.grid->device;
  return scope == Scope::cluster ? cta_of(a).cluster == cta_of(b).cluster : a.cta == b.cta;
}

bool Cohort::knows(const Warp& warp, const HistoryCell& cell, const Clock& clock) const {
  if (cell.cohort < context_.first_cohort) return true;
  if (cell.cohort == number_) return cell.time <= clock[cell.thread];
  if (warp.foreign == nullptr) return false;
  const auto found = warp.foreign->find(cell.cohort);
  return found != warp.foreign->end() && cell.time <= (*found->second)[cell.thread];
}

bool Cohort::conflicts(const Warp& warp, const HistoryCell& cell, uint16_t bytes, const GlobalAccess& access,
                       const Clock& clock) const {
  if (cell.cohort == 0 || (cell.bytes & bytes) == 0 || (!cell.is_write && !access.is_write)) return false;
  const bool is_own_cohort = cell.cohort == number_;
  if (is_own_cohort && cell.thread == warp.id) return false;
  if (cell.is_strong && access.is_strong) {
    // cohorts run apart only on one device
    const auto other = static_cast<Scope>(cell.scope);
    if (is_own_cohort && includes(access.scope, warp, cell.thread) &&
        includes(other, warps_[cell.thread], static_cast<uint32_t>(warp.id)))
      return false;
    if (!is_own_cohort && access.scope >= Scope::gpu && other >= Scope::gpu) return false;
  }
  return !knows(warp, cell, clock);
}

void Cohort::report_conflict(const HistoryCell& cell, uint64_t address, const GlobalAccess& access, const Site& site) {
  const std::string who = cell.cohort == number_ ? describe_thread(cell.thread)
                                                 : fmt::format("a CTA of another cluster, warp {}", cell.thread);
  const std::string place = context_.memory.describe(address);
  if (cell.is_strong && access.is_strong)
    return report(
        ReportKind::scope, site,
        fmt::format("{} of {} with {} against one with {} by {} at PTX line {}: the scopes do not contain each other",
                    access.is_write ? "store" : "load", place, kScopeNames[static_cast<size_t>(access.scope)],
                    kScopeNames[cell.scope], who, cell.line));
  const char* verb = access.is_write ? (cell.is_write ? "writes {} over what {} wrote at PTX line {}: not ordered"
                                                      : "writes {}, which {} reads at PTX line {}: not ordered")
                                     : "reads {}, which {} wrote at PTX line {}: not ordered";
  report(ReportKind::race, site, fmt::format(fmt::runtime(verb), place, who, cell.line));
}

void Cohort::history_access(Warp& warp, Region& region, uint64_t address, uint16_t bytes, const GlobalAccess& access,
                            const Clock& clock, const Site& site) {
  HistoryChunk& chunk = region.history[(address - (region.address() & ~uint64_t{15})) / 16];
  const HistoryCell mine{number_,
                         clock[warp.id],
                         static_cast<uint16_t>(warp.id),
                         bytes,
                         static_cast<uint16_t>(site.line),
                         static_cast<uint8_t>(access.scope),
                         access.is_write,
                         access.is_strong};
  HistoryCell* place = nullptr;
  for (HistoryCell& cell : chunk.cells) {
    const bool is_same = cell.cohort == mine.cohort && cell.thread == mine.thread && cell.is_write == mine.is_write &&
                         cell.is_strong == mine.is_strong;
    if (is_same && cell.time == mine.time) {
      if ((cell.bytes & bytes) == bytes) return;
      if (place == nullptr) {
        cell.bytes |= bytes;
        place = &cell;
      }
      continue;
    }
    if (conflicts(warp, cell, bytes, access, clock)) report_conflict(cell, address, access, site);
    const bool is_covered = (cell.bytes & ~bytes) == 0;
    const bool is_stale =
        cell.cohort < context_.first_cohort || (is_covered && (is_same || (access.is_write && !cell.is_strong)));
    if (is_stale && place == nullptr) cell = mine, place = &cell;
    else if (is_stale) cell = HistoryCell();
  }
  if (place == nullptr) chunk.cells[(mine.time + mine.thread) % 4] = mine;
}

void Cohort::global_access(Warp& warp, uint64_t address, uint32_t bytes, const GlobalAccess& access, const Clock& clock,
                           const Site& site) {
  Region* region = warp.last_region;
  if (region == nullptr || region->history == nullptr || !region->contains(address, bytes)) return;
  if (access.is_strong) region->has_strong = true;
  std::unique_lock<std::mutex> lock;
  if (context_.is_parallel) lock = std::unique_lock(context_.history_mutex[address / 256 % 64]);
  for (uint64_t at = address; at < address + bytes;) {
    const uint64_t end = std::min(address + bytes, (at | 15) + 1);
    const auto mask = static_cast<uint16_t>(((1u << (end - at)) - 1) << (at & 15));
    history_access(warp, *region, at, mask, access, clock, site);
    at = end;
  }
}

}  // namespace seqtile::sim
