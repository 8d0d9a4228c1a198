// jit/sim/memory/synchronisation.cpp -- the order of accesses as clocks: barriers, fences, releases and acquires.
// SPDX-License-Identifier: Apache-2.0
//
// A release leaves a message at its address, an acquire of that address learns every message whose scope reaches it; a
// plain store ends the chain, a read-modify-write continues it. A fence before a relaxed store releases, a fence after
// a relaxed load acquires what that load has seen.
#include <fmt/format.h>

#include <algorithm>

#include "jit/sim/exec/cohort.h"

namespace seqtile::sim {

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
  if (thread < wait_thread(0)) {
    const uint32_t copy = thread - static_cast<uint32_t>(warps_.size());
    return fmt::format("a {} of CTA {}",
                       copy % kCopyThreads < kCopyThreads - kStoreThreads ? "bulk load" : "bulk store",
                       ctas_[copy / kCopyThreads].linear);
  }
  const Warp& warp = warps_[thread - wait_thread(0)];
  return fmt::format("a wgmma of CTA {} warp group {}", cta_of(warp).linear, warp.index / 4);
}

void Cohort::publish(Warp& warp) {
  if (warp.clock[warp.id] + 1 >= kMaxTime)
    return report_limit(
        warp, fmt::format("{} synchronisations of one warp, all that the race check tells apart: an endless loop, or a "
                          "launch to be made with that check off",
                          warp.clock[warp.id]));
  ++warp.clock[warp.id];
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

bool Cohort::reaches(const ReleasedMessage& message, Scope scope, const Warp& warp) const {
  const Scope both = std::min(message.scope, scope);
  if (both == Scope::sys) return true;
  if (message.device != warp.grid->device) return false;
  if (both == Scope::gpu) return true;
  const bool is_same_cluster = message.cohort == number_ && message.cluster == cta_of(warp).cluster;
  return both == Scope::cluster ? is_same_cluster : is_same_cluster && message.cta == warp.cta;
}

/// Applies the memory order of an access, after the data has moved. `messages`: the releases at its address. For global
/// memory the caller holds the sync lock.
void Cohort::synchronise(Warp& warp, std::vector<ReleasedMessage>& messages, Order order, Scope scope, bool is_read,
                         bool is_write) {
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
    const auto index = static_cast<size_t>(needed);
    if (message.cohort == number_) join(warp.acquire_pending[index], *message.clock);
    else merge(warp.foreign_pending[index], message.cohort, message.clock);
    merge(warp.foreign_pending[index], message.foreign);
    return;
  }
  if (message.cohort == number_) learn(warp, *message.clock);
  else merge(warp.foreign, message.cohort, message.clock);
  merge(warp.foreign, message.foreign);
}

void Cohort::release(Warp& warp, std::vector<ReleasedMessage>& messages, Order order, Scope scope) {
  const Cta& cta = cta_of(warp);
  const auto leave = [&](Scope reach, ClockSnapshot clock, const ForeignClocks& foreign) {
    std::erase_if(messages, [&](const ReleasedMessage& m) {
      return m.cohort == number_ && m.thread == warp.id && m.scope == reach;
    });
    messages.push_back({number_, warp.id, warp.cta, cta.cluster, warp.grid->device, reach, std::move(clock), foreign});
  };
  if (order == Order::release || order == Order::acq_rel || order == Order::sc) {
    leave(scope, snapshot(warp), warp.foreign);
    publish(warp);
    return;
  }
  for (size_t f = 0; f < 4; ++f)
    if (!warp.fence_release[f].empty())
      leave(std::min(static_cast<Scope>(f), scope), std::make_shared<const Clock>(warp.fence_release[f]),
            warp.fence_foreign[f]);
}

void Cohort::fence(Warp& warp, Scope scope) {
  for (size_t f = 0; f <= static_cast<size_t>(scope); ++f) {
    if (!warp.acquire_pending[f].empty()) learn(warp, warp.acquire_pending[f]);
    merge(warp.foreign, warp.foreign_pending[f]);
  }
  warp.fence_release[static_cast<size_t>(scope)] = warp.clock;
  warp.fence_foreign[static_cast<size_t>(scope)] = warp.foreign;
  publish(warp);
}

}  // namespace seqtile::sim
