// jit/sim/happens_before.cpp -- which accesses are ordered, by the barriers, scopes and orders that the text contains.
// SPDX-License-Identifier: Apache-2.0
//
// Shared memory: exact (shared_shadow.h). Global memory: the last accesses of every 16 bytes (memory_map.h); two strong
// accesses whose scopes contain each other are no race. A release leaves a message at its address, an acquire of that
// address learns every message whose scope reaches it; a plain store ends the chain, a read-modify-write continues it.
// CTAs of different clusters know nothing of each other until such a message passes.
#include <fmt/format.h>

#include <algorithm>

#include "jit/error.h"
#include "jit/sim/address.h"
#include "jit/sim/cohort.h"

namespace seqtile::sim {
namespace {

constexpr std::string_view kScopeNames[] = {".cta", ".cluster", ".gpu", ".sys"};

}  // namespace

void merge(ForeignClocks& into, uint32_t cohort, const ClockSnapshot& clock) {
  auto known = into != nullptr ? *into : std::map<uint32_t, ClockSnapshot>();
  ClockSnapshot& entry = known[cohort];
  Clock joined = entry != nullptr ? *entry : Clock();
  join(joined, *clock);
  entry = std::make_shared<const Clock>(std::move(joined));
  into = std::make_shared<const std::map<uint32_t, ClockSnapshot>>(std::move(known));
}

void merge(ForeignClocks& into, const ForeignClocks& other) {
  if (other == nullptr || into == other) return;
  if (into == nullptr) into = other;
  else
    for (const auto& [cohort, clock] : *other) merge(into, cohort, clock);
}

/// Reads of a wgmma stand under its group's first warp; strictly they are over when all four warps have waited.
uint32_t Cohort::known_time(const Clock& clock, uint32_t thread) const {
  const uint32_t first_wait = wait_thread(0);
  if (thread < first_wait) return clock[thread];
  return std::min(std::min(clock[thread], clock[thread + 1]), std::min(clock[thread + 2], clock[thread + 3]));
}

std::string Cohort::describe_thread(uint32_t thread) const {
  if (thread < warps_.size()) {
    const Warp& warp = warps_[thread];
    return fmt::format("device {} CTA {} warp {}", warp.grid->device, cta_of(warp).linear, warp.index);
  }
  if (thread < wait_thread(0)) return fmt::format("a tensor copy of CTA {}", ctas_[thread - warps_.size()].linear);
  const Warp& warp = warps_[thread - wait_thread(0)];
  return fmt::format("a wgmma of CTA {} warp group {}", cta_of(warp).linear, warp.index / 4);
}

void Cohort::publish(Warp& warp) {
  if (++warp.clock[warp.id] >= kMaxTime)
    throw Error(ErrorCode::unsupported, "more than a million synchronisations of one warp; switch the race check off");
  warp.snapshot = nullptr;
}

void Cohort::learn(Warp& warp, const Clock& clock) {
  join(warp.clock, clock);
  warp.snapshot = nullptr;
}

ClockSnapshot Cohort::snapshot(Warp& warp) {
  if (warp.snapshot == nullptr) warp.snapshot = std::make_shared<const Clock>(warp.clock);
  return warp.snapshot;
}

void Cohort::shared_read(Cta& cta, uint32_t address, uint32_t bytes, uint32_t thread, const Clock& clock,
                         const Site& site, bool is_async) {
  const uint32_t offset = address - kSharedBase;
  if (offset + uint64_t{bytes} > cta.shadow.bytes()) return;
  const uint32_t me = make_epoch(thread, clock[thread]);
  cta.shadow.each(offset, bytes, false, [&](ShadowCell& cell, uint32_t at) {
    if (cell.read == me && cell.pending == 0) return;
    const bool has_many = (cell.read & ShadowCell::kMany) != 0;
    if (has_many && cell.pending == 0 && cta.shadow.readers(cell)[thread] == clock[thread]) return;
    if (cell.pending != 0 && checks_flight_)
      report(ReportKind::missing_wait, site,
             fmt::format("shared + {} has a cp.async of {} in flight", at, describe_thread(cell.pending - 1u)));
    if (cell.write == 0) {
      if (cell.pending == 0 && checks_initialised_)
        report(ReportKind::uninitialised_memory, site, fmt::format("shared read at shared + {}", at));
    } else if (races() && !is_before(cell.write, clock)) {
      report(ReportKind::race, site,
             fmt::format("reads shared + {}, which {} wrote at PTX line {}: not ordered", at,
                         describe_thread(epoch_thread(cell.write)), cell.write_line));
    } else if (is_async && checks_flight_ && (cell.flags & ShadowCell::kAsync) == 0 &&
               epoch_thread(cell.write) < warps_.size() &&
               static_cast<uint8_t>(warps_[epoch_thread(cell.write)].proxy_fences) == cell.proxy_fences) {
      report(ReportKind::missing_fence, site,
             fmt::format("shared + {} was written at PTX line {} without fence.proxy.async after it", at,
                         cell.write_line));
    }
    cell.read_line = static_cast<uint16_t>(site.line);
    if (has_many) cta.shadow.readers(cell)[thread] = clock[thread];
    else if (cell.read == 0 || is_before(cell.read, clock)) cell.read = me;
    else cta.shadow.add_readers(cell, num_threads())[thread] = clock[thread];
  });
}

void Cohort::check_shared_write(const Cta&, SharedShadow& shadow, ShadowCell& cell, uint32_t at, uint32_t thread,
                                const Clock& clock, const Site& site) {
  if (cell.pending != 0 && cell.pending != thread + 1)
    report(
        ReportKind::missing_wait, site,
        fmt::format("writes shared + {}, where a cp.async of {} is in flight", at, describe_thread(cell.pending - 1u)));
  if (!races()) return;
  if (cell.write != 0 && !is_before(cell.write, clock))
    report(ReportKind::race, site,
           fmt::format("writes shared + {} over what {} wrote at PTX line {}: not ordered", at,
                       describe_thread(epoch_thread(cell.write)), cell.write_line));
  const auto report_reader = [&](uint32_t reader) {
    report(ReportKind::race, site,
           fmt::format("writes shared + {}, which {} reads at PTX line {}: not ordered", at, describe_thread(reader),
                       cell.read_line));
  };
  if (cell.read & ShadowCell::kMany) {
    const std::vector<uint32_t>& readers = shadow.readers(cell);
    const size_t plain = wait_thread(0);
    uint32_t unordered = 0;
    for (size_t t = 0; t < plain; ++t) unordered |= readers[t] > clock[t];
    for (size_t t = plain; t < readers.size(); t += 4)
      unordered |= readers[t] != 0 && readers[t] > known_time(clock, static_cast<uint32_t>(t));
    if (unordered == 0) return;
    for (uint32_t t = 0; t < readers.size(); ++t)
      if (readers[t] != 0 && readers[t] > known_time(clock, t)) return report_reader(t);
  } else if (cell.read != 0 && !is_before(cell.read, clock)) {
    report_reader(epoch_thread(cell.read));
  }
}

void Cohort::shared_write(Cta& cta, uint32_t address, uint32_t bytes, uint32_t thread, const Clock& clock,
                          const Site& site, bool is_async) {
  const uint32_t offset = address - kSharedBase;
  if (offset + uint64_t{bytes} > cta.shadow.bytes()) return;
  const uint32_t me = make_epoch(thread, clock[thread]);
  const auto fences = static_cast<uint8_t>(thread < warps_.size() ? warps_[thread].proxy_fences : 0);
  cta.shadow.each(offset, bytes, true, [&](ShadowCell& cell, uint32_t at) {
    if (!(cell.write == me && cell.read == 0 && cell.pending == 0))
      check_shared_write(cta, cta.shadow, cell, at, thread, clock, site);
    if (cell.read != 0) cta.shadow.clear_readers(cell);
    cell.write = me;
    cell.write_line = static_cast<uint16_t>(site.line);
    cell.proxy_fences = fences;
    cell.flags = is_async ? ShadowCell::kAsync : 0;
  });
}

/// A cp.async conflicts from its issue on, but its data is there only after the wait.
void Cohort::shared_copy_issue(Cta& cta, uint32_t address, uint32_t bytes, Warp& warp, const Site& site) {
  const uint32_t offset = address - kSharedBase;
  if (offset + uint64_t{bytes} > cta.shadow.bytes()) return;
  cta.shadow.each(offset, bytes, false, [&](ShadowCell& cell, uint32_t at) {
    check_shared_write(cta, cta.shadow, cell, at, static_cast<uint32_t>(warp.id), warp.clock, site);
    cell.pending = static_cast<uint16_t>(warp.id + 1);
  });
}

void Cohort::shared_copy_land(Cta& cta, uint32_t address, uint32_t bytes, Warp& warp, const Site& site) {
  const uint32_t offset = address - kSharedBase;
  if (offset + uint64_t{bytes} > cta.shadow.bytes()) return;
  const uint32_t me = make_epoch(static_cast<uint32_t>(warp.id), warp.clock[warp.id]);
  cta.shadow.each(offset, bytes, true, [&](ShadowCell& cell, uint32_t) {
    if (cell.read != 0) cta.shadow.clear_readers(cell);
    cell.write = me;
    cell.write_line = static_cast<uint16_t>(site.line);
    cell.proxy_fences = static_cast<uint8_t>(warp.proxy_fences);
    cell.pending = 0;
    cell.flags = 0;
  });
}

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

void Cohort::report_conflict(const Warp&, const HistoryCell& cell, uint64_t address, const GlobalAccess& access,
                             const Site& site) {
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
                         access.is_strong,
                         access.is_atomic};
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
    if (conflicts(warp, cell, bytes, access, clock)) report_conflict(warp, cell, address, access, site);
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
  if (region == nullptr || region->history == nullptr || address < region->address() || address + bytes > region->end())
    return;
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

bool Cohort::reaches(const ReleasedMessage& message, Scope scope, const Warp& warp) const {
  const Scope both = std::min(message.scope, scope);
  if (both == Scope::sys) return true;
  if (message.device != warp.grid->device) return false;
  if (both == Scope::gpu) return true;
  const bool is_same_cluster = message.cohort == number_ && message.cluster == cta_of(warp).cluster;
  return both == Scope::cluster ? is_same_cluster : is_same_cluster && message.cta == warp.cta;
}

/// What the memory order of a global access means, after the data has moved. Called with the sync lock held.
void Cohort::synchronise(Warp& warp, uint64_t address, Order order, Scope scope, bool is_read, bool is_write) {
  std::vector<ReleasedMessage>& messages = context_.released[address];
  if (is_read) {
    for (const ReleasedMessage& message : messages)
      if (order != Order::weak && reaches(message, scope, warp)) acquire(warp, message, order);
  }
  if (!is_write) return;
  if (!is_read) messages.clear();
  if (order != Order::weak) release(warp, messages, order, scope);
}

void Cohort::acquire(Warp& warp, const ReleasedMessage& message, Order order) {
  if (order == Order::relaxed || order == Order::release) {
    // held back until a fence wide enough to contain both sides
    Scope needed = Scope::sys;
    if (message.device == warp.grid->device)
      needed = message.cohort == number_ && message.cta == warp.cta ? Scope::cta : Scope::gpu;
    if (message.cohort == number_) join(warp.acquire_pending[static_cast<size_t>(needed)], *message.clock);
    return;
  }
  if (message.cohort == number_) learn(warp, *message.clock);
  else merge(warp.foreign, message.cohort, message.clock);
  merge(warp.foreign, message.foreign);
}

void Cohort::release(Warp& warp, std::vector<ReleasedMessage>& messages, Order order, Scope scope) {
  const Cta& cta = cta_of(warp);
  const auto leave = [&](Scope reach, ClockSnapshot clock) {
    std::erase_if(messages, [&](const ReleasedMessage& m) {
      return m.cohort == number_ && m.thread == warp.id && m.scope == reach;
    });
    messages.push_back(
        {number_, warp.id, warp.cta, cta.cluster, warp.grid->device, reach, std::move(clock), warp.foreign});
  };
  if (order == Order::release || order == Order::acq_rel || order == Order::sc) {
    leave(scope, snapshot(warp));
    publish(warp);
    return;
  }
  for (size_t f = 0; f < 4; ++f)
    if (!warp.fence_release[f].empty())
      leave(std::min(static_cast<Scope>(f), scope), std::make_shared<const Clock>(warp.fence_release[f]));
}

void Cohort::fence(Warp& warp, Scope scope) {
  for (size_t f = 0; f <= static_cast<size_t>(scope); ++f)
    if (!warp.acquire_pending[f].empty()) learn(warp, warp.acquire_pending[f]);
  warp.fence_release[static_cast<size_t>(scope)] = warp.clock;
  publish(warp);
}

}  // namespace seqtile::sim
