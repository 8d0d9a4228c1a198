// jit/sim/memory/mbarriers.cpp -- mbarriers: counts of arrivals and of bytes under way, in phases.
// SPDX-License-Identifier: Apache-2.0
//
// A phase completes when no arrival is missing and no byte is outstanding. A warp whose wait acquires then joins the
// clocks of all arrivals and copies. The object is opaque: its eight bytes belong to the mbarrier instructions alone.
#include <fmt/format.h>

#include <bit>
#include <utility>

#include "jit/ptx/address.h"
#include "jit/sim/exec/cohort.h"

namespace seqtile::sim {
namespace {

constexpr uint32_t kMaxCount = (1u << 20) - 1;  ///< of arrivals and of bytes

bool is_of_other_cta(const Cta& own, uint64_t address) {
  const uint32_t rank = static_cast<uint32_t>(address) >> kRankShift;
  return rank != 0 && rank != 1u + static_cast<uint32_t>(own.rank);
}

}  // namespace

/// The barrier at an address of this or another CTA of the cluster; null after a report.
Mbarrier* Cohort::find_mbarrier(Cta& own, uint64_t address, const Site& site, const Clock* clock) {
  auto narrow = static_cast<uint32_t>(address);
  Cta& cta = *cta_of(own, narrow, site);
  if (&cta != &own && clock != nullptr) join(cta.remote, *clock);
  const auto found = cta.mbarriers.find(narrow);
  if (found == cta.mbarriers.end()) {
    report(ReportKind::mbarrier, site,
           fmt::format("shared + {} of CTA {} is not an initialised mbarrier",
                       static_cast<int64_t>(narrow) - kSharedBase, cta.linear));
    return nullptr;
  }
  Mbarrier& barrier = found->second;
  if (clock != nullptr && barrier.init_epoch != 0) check_init_order(cta, barrier, narrow - kSharedBase, site, *clock);
  return &barrier;
}

/// An init is known by what orders everything, or by fence.mbarrier_init and whatever arrives behind it.
void Cohort::check_init_order(const Cta& cta, const Mbarrier& barrier, uint32_t at, const Site& site,
                              const Clock& clock) {
  if (is_before(barrier.init_epoch, clock)) return;
  const auto index = static_cast<int>(&cta - ctas_.data());
  if (barrier.init_fence != 0 && barrier.init_fence <= clock[init_thread(index)]) return;
  const std::string who = describe_thread(epoch_thread(barrier.init_epoch));
  const Clock& relaxed = site.warp->relaxed_seen;
  if (relaxed.empty() || !is_before(barrier.init_epoch, relaxed))
    report(ReportKind::race, site,
           fmt::format("the mbarrier at shared + {} is used before its init by {} is visible", at, who));
  else
    report(ReportKind::missing_fence, site,
           fmt::format("the mbarrier at shared + {} of CTA {} was initialised by {} at PTX line {}, and its arrival at "
                       "the cluster barrier is relaxed: fence.mbarrier_init.release.cluster is missing between",
                       at, cta.linear, who, barrier.init_line));
}

/// Copies of the async proxy see an mbarrier behind a fence of the warp that has initialised it.
void Cohort::check_init_fence(const Cta& cta, uint32_t address, const Site& site) {
  const auto found = cta.mbarriers.find(address);
  if (!checks_flight_ || found == cta.mbarriers.end()) return;
  const Mbarrier& barrier = found->second;
  if (barrier.init_fence != 0 || warps_[barrier.init_warp].proxy_fences != barrier.init_proxy_fences) return;
  report(
      ReportKind::missing_fence, site,
      fmt::format("the copy completes on the mbarrier at shared + {} of CTA {}, which was initialised at PTX line {} "
                  "without fence.mbarrier_init.release.cluster (or fence.proxy.async) after it",
                  address - kSharedBase, cta.linear, barrier.init_line));
}

/// fence.mbarrier_init: every init that this warp knows becomes visible to whom it arrives at from now on.
void Cohort::fence_init(Warp& warp) {
  Cta& cta = cta_of(warp);
  bool has_any = false;
  for (auto& [address, barrier] : cta.mbarriers) {
    const bool is_own = barrier.init_warp == warp.id;
    if (barrier.init_fence != 0 || !(is_own || (races() && is_before(barrier.init_epoch, warp.clock)))) continue;
    barrier.init_fence = cta.init_fences + 1;
    has_any = true;
  }
  if (!has_any) return;
  ++cta.init_fences;
  if (!races()) return;
  warp.clock[init_thread(warp.cta)] = cta.init_fences;
  warp.snapshot = nullptr;
}

void Cohort::mbarrier_init(Warp& warp, const Instruction& i, uint32_t mask) {
  Cta& cta = cta_of(warp);
  for (uint32_t left = mask; left != 0; left &= left - 1) {
    const int lane = std::countr_zero(left);
    const Site site{&warp, i.line, lane};
    const auto address = static_cast<uint32_t>(lane_address(warp, i, i.slot[0], lane, i.offset));
    if (shared(cta, address, 8, 8, site) == refused_) continue;
    const bool is_init = i.op == Op::mbarrier_init;
    if (is_init == cta.mbarriers.contains(address))
      report(ReportKind::mbarrier, site,
             fmt::format("shared + {} is {}", address - kSharedBase,
                         is_init ? "an mbarrier already; invalidate it first" : "not an initialised mbarrier"));
    else if (tracks_shared())
      shared_mbarrier(
          cta, address, is_init,
          {static_cast<uint32_t>(warp.id), warp.clock, site, AccessKind::plain, static_cast<uint8_t>(lane)});
    if (!is_init) {
      cta.mbarriers.erase(address);
      continue;
    }
    Mbarrier barrier;
    const uint32_t count = lanes(warp, i.slot[1])[lane];
    barrier.count = barrier.pending = static_cast<int32_t>(count);
    barrier.init_warp = warp.id, barrier.init_line = i.line, barrier.init_proxy_fences = warp.proxy_fences;
    if (count == 0 || count > kMaxCount)
      report(ReportKind::mbarrier, site, fmt::format("a count of {}: 1 to {}", count, kMaxCount));
    if (races())
      barrier.clock = barrier.completed = warp.clock,
      barrier.init_epoch = make_epoch(static_cast<uint32_t>(warp.id), warp.clock[warp.id]);
    cta.mbarriers[address] = barrier;
  }
  if (races()) publish(warp);
  ++events_;
}

/// All forms of arrive, expect_tx and complete_tx: operands are state, address and a count or a number of bytes.
void Cohort::mbarrier_arrive(Warp& warp, const Instruction& i, uint32_t mask) {
  const bool is_expect_only = i.op != Op::mbarrier_arrive;
  const uint32_t address_at = is_expect_only ? 0 : 1;
  const bool has_value = i.num_operands > address_at + 1;
  Cta& own = cta_of(warp);
  for (uint32_t left = mask; left != 0; left &= left - 1) {
    const int lane = std::countr_zero(left);
    const Site site{&warp, i.line, lane};
    const uint64_t address = lane_address(warp, i, i.slot[address_at], lane, i.offset);
    Mbarrier* barrier = find_mbarrier(own, address, site, races() ? &warp.clock : nullptr);
    if (barrier == nullptr) continue;
    const uint32_t value = has_value ? lanes(warp, i.slot[address_at + 1])[lane] : 1;
    const bool is_remote = is_of_other_cta(own, address);
    if (is_remote && !is_expect_only && i.order != Order::relaxed && i.scope == Scope::cta)
      report(ReportKind::scope, site, "the arrival is at an mbarrier of another CTA: .release.cluster is needed");
    barrier->has_remote |= is_remote && !is_expect_only;
    if (!is_expect_only) wide_lanes(warp, i.slot[0])[lane] = barrier->phase;
    if (i.op == Op::mbarrier_complete) barrier->tx -= value;
    else if (is_expect_only || i.flag2) barrier->tx += value;
    if (barrier->tx > int64_t{kMaxCount})
      report(ReportKind::mbarrier, site,
             fmt::format("{} bytes are expected, at most {} can be", barrier->tx, kMaxCount));
    if (!is_expect_only) barrier->pending -= static_cast<int32_t>(i.flag2 ? 1 : value);
    if (i.flag && !is_expect_only) --barrier->count;
    if (races() && i.order != Order::relaxed) join(barrier->clock, warp.clock), merge(barrier->foreign, warp.foreign);
    check_mbarrier(*barrier, site);
  }
  if (races()) publish(warp);
  ++events_;
}

void Cohort::check_mbarrier(Mbarrier& barrier, const Site& site) {
  if (barrier.pending < 0) {
    report(ReportKind::mbarrier, site, fmt::format("more arrivals than the count of {}", barrier.count));
    barrier.pending = 0;
  }
  if (barrier.pending > 0 || barrier.tx != 0) return;
  ++barrier.phase;
  barrier.pending = barrier.count;
  barrier.completed = barrier.clock;
  barrier.is_remote = std::exchange(barrier.has_remote, false);
  ++events_;
}

/// A failed test ends the warp's turn at the next backward branch.
void Cohort::mbarrier_wait(Warp& warp, const Instruction& i, uint32_t mask) {
  bool any = false;
  for (uint32_t left = mask; left != 0; left &= left - 1) {
    const int lane = std::countr_zero(left);
    const Site site{&warp, i.line, lane};
    const uint64_t address = lane_address(warp, i, i.slot[1], lane, i.offset);
    if (is_of_other_cta(cta_of(warp), address))
      report(ReportKind::mbarrier, site, "only the CTA that has the mbarrier can wait for it");
    const Mbarrier* barrier = find_mbarrier(cta_of(warp), address, site, races() ? &warp.clock : nullptr);
    bool is_over = false;
    if (barrier != nullptr && i.flag) is_over = (barrier->phase & 1) != (lanes(warp, i.slot[2])[lane] & 1);
    else if (barrier != nullptr) is_over = barrier->phase != static_cast<uint32_t>(wide_lanes(warp, i.slot[2])[lane]);
    lanes(warp, i.slot[0])[lane] = is_over ? ~0u : 0u;
    any |= is_over;
    if (is_over && barrier->is_remote && i.order != Order::relaxed && i.scope == Scope::cta)
      report(ReportKind::scope, site, "another CTA has arrived at the mbarrier: .acquire.cluster is needed");
    if (is_over && races() && i.order != Order::relaxed)
      learn(warp, barrier->completed), merge(warp.foreign, barrier->foreign);
  }
  if (any) return;
  has_spun_ = true;
  ++counters_.barrier_waits;
}

}  // namespace seqtile::sim
