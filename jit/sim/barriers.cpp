// jit/sim/barriers.cpp -- named barriers, the cluster barrier and mbarriers.
// SPDX-License-Identifier: Apache-2.0
//
// A warp can be in two waits at once (one lane spins on an mbarrier, the others stand at the cluster barrier), so it is
// groups that wait, not warps, and arrivals at the cluster barrier are counted per lane.
#include <fmt/format.h>

#include <bit>

#include "jit/sim/address.h"
#include "jit/sim/cohort.h"

namespace seqtile::sim {

uint32_t Cohort::live_threads(const Cta& cta) const {
  uint32_t threads = 0;
  for (int w = cta.first_warp; w < cta.first_warp + cta.num_warps; ++w) threads += warps_[w].live != 0 ? kWarpLanes : 0;
  return threads;
}

Flow Cohort::bar(Warp& warp, const Instruction& i, uint32_t mask) {
  Cta& cta = cta_of(warp);
  const int lane = std::countr_zero(mask);
  const Site site{&warp, i.line, -1};
  uint32_t number = lanes(warp, i.slot[0])[lane];
  const uint32_t threads = lanes(warp, i.slot[1])[lane];
  if (number > 15 || threads == 0 || threads % kWarpLanes != 0) {
    report(ReportKind::barrier, site,
           fmt::format("barrier {} with {} threads: 0 to 15, and whole warps", number, threads));
    number &= 15;
  }
  Barrier& barrier = cta.barriers[number];
  barrier.is_open_count = i.flag;
  if (barrier.arrived > 0 && barrier.expected != threads)
    report(ReportKind::barrier, site,
           fmt::format("barrier {} is used with {} and {} threads at once", number, barrier.expected, threads));
  barrier.expected = threads;
  barrier.arrived += kWarpLanes;
  if (barrier.arrived > threads)
    report(ReportKind::barrier, site,
           fmt::format("barrier {} gets {} threads, {} are expected", number, barrier.arrived, threads));
  if (races()) join(barrier.clock, warp.clock), merge(barrier.foreign, warp.foreign);
  if (i.op == Op::bar_arrive) {
    if (races()) publish(warp);
    ++events_;
  } else {
    barrier.waiting.push_back(warp.id);
    current(warp).state = GroupState::at_barrier;
    current(warp).wait_for = number;
  }
  const uint32_t expected = barrier.is_open_count ? std::min(threads, live_threads(cta)) : threads;
  if (barrier.arrived >= expected) complete_barrier(cta, number);
  else if (i.op == Op::bar_sync) ++counters_.barrier_waits;
  return current(warp).state == GroupState::running ? Flow::next : Flow::park;
}

void Cohort::complete_barrier(Cta& cta, uint32_t number) {
  Barrier& barrier = cta.barriers[number];
  for (const int id : barrier.waiting) {
    Warp& warp = warps_[id];
    for (Group& group : warp.groups)
      if (group.state == GroupState::at_barrier && group.wait_for == number) group.state = GroupState::running;
    if (races()) learn(warp, barrier.clock), merge(warp.foreign, barrier.foreign), publish(warp);
  }
  barrier.arrived = 0;
  barrier.waiting.clear();
  barrier.clock.clear();
  barrier.foreign = nullptr;
  ++events_;
}

/// Threads that leave count as arrived at barriers of the whole CTA.
void Cohort::recheck_barriers(Cta& cta) {
  for (uint32_t number = 0; number < cta.barriers.size(); ++number) {
    const Barrier& barrier = cta.barriers[number];
    if (barrier.arrived > 0 && barrier.is_open_count && barrier.arrived >= live_threads(cta))
      complete_barrier(cta, number);
  }
}

void Cohort::cluster_arrive(Warp& warp, const Instruction& i, uint32_t mask) {
  ClusterState& cluster = clusters_[cta_of(warp).cluster];
  if (races() && !i.flag) join(cluster.clock, warp.clock), merge(cluster.foreign, warp.foreign), publish(warp);
  for_lanes(mask, [&](int lane) { warp.cluster_phase[lane] = cluster.phase; });
  cluster.arrived += static_cast<uint32_t>(std::popcount(mask));
  check_cluster(cluster);
}

Flow Cohort::cluster_wait(Warp& warp, uint32_t mask) {
  const ClusterState& cluster = clusters_[cta_of(warp).cluster];
  const uint32_t phase = warp.cluster_phase[std::countr_zero(mask)];
  if (phase < cluster.phase) {
    if (races() && !cluster.released.empty()) learn(warp, cluster.released), merge(warp.foreign, cluster.foreign);
    return Flow::next;
  }
  ++counters_.barrier_waits;
  current(warp).state = GroupState::at_cluster;
  current(warp).wait_for = phase;
  return Flow::retry;
}

void Cohort::check_cluster(ClusterState& cluster) {
  if (cluster.arrived == 0) return;
  uint32_t live = 0;
  const Cta& last = ctas_[cluster.first_cta + cluster.num_ctas - 1];
  const int first_warp = ctas_[cluster.first_cta].first_warp, end_warp = last.first_warp + last.num_warps;
  for (int w = first_warp; w < end_warp; ++w) live += static_cast<uint32_t>(std::popcount(warps_[w].live));
  if (cluster.arrived < live) return;
  cluster.arrived = 0;
  ++cluster.phase;
  cluster.released = cluster.clock;
  ++events_;
  for (int w = first_warp; w < end_warp; ++w)
    for (Group& group : warps_[w].groups)
      if (group.state == GroupState::at_cluster && group.wait_for < cluster.phase) group.state = GroupState::running;
}

/// The barrier at an address of this or another CTA of the cluster; null after a report.
Mbarrier* Cohort::find_mbarrier(Warp& warp, Cta& own, uint64_t address, const Site& site, const Clock* clock) {
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
  if (clock != nullptr && barrier.init_epoch != 0 && !is_before(barrier.init_epoch, *clock))
    report(ReportKind::race, site,
           fmt::format("the mbarrier at shared + {} is used before its init by {} is visible", narrow - kSharedBase,
                       describe_thread(epoch_thread(barrier.init_epoch))));
  (void)warp;
  return &barrier;
}

void Cohort::mbarrier_init(Warp& warp, const Instruction& i, uint32_t mask) {
  Cta& cta = cta_of(warp);
  for (uint32_t left = mask; left != 0; left &= left - 1) {
    const int lane = std::countr_zero(left);
    const Site site{&warp, i.line, lane};
    const auto address = static_cast<uint32_t>(lane_address(warp, i, i.slot[0], lane, i.offset));
    if (shared(cta, address, 8, site) == refused_) continue;
    if (i.op == Op::mbarrier_inval) {
      cta.mbarriers.erase(address);
      continue;
    }
    Mbarrier barrier;
    barrier.count = barrier.pending = static_cast<int32_t>(lanes(warp, i.slot[1])[lane]);
    if (barrier.count <= 0) report(ReportKind::mbarrier, site, "a count of at least 1 is needed");
    if (races())
      barrier.clock = barrier.completed = warp.clock,
      barrier.init_epoch = make_epoch(static_cast<uint32_t>(warp.id), warp.clock[warp.id]);
    cta.mbarriers[address] = barrier;
  }
  if (races()) publish(warp);
  ++events_;
}

/// All forms of arrive and expect_tx: operands are state, address and a count or a number of bytes.
void Cohort::mbarrier_arrive(Warp& warp, const Instruction& i, uint32_t mask) {
  const bool is_expect_only = i.op == Op::mbarrier_expect;
  const uint32_t address_at = is_expect_only ? 0 : 1;
  const bool has_value = i.num_operands > address_at + 1;
  Cta& own = cta_of(warp);
  for (uint32_t left = mask; left != 0; left &= left - 1) {
    const int lane = std::countr_zero(left);
    const Site site{&warp, i.line, lane};
    const uint64_t address = lane_address(warp, i, i.slot[address_at], lane, i.offset);
    Mbarrier* barrier = find_mbarrier(warp, own, address, site, races() ? &warp.clock : nullptr);
    if (barrier == nullptr) continue;
    const uint32_t value = has_value ? lanes(warp, i.slot[address_at + 1])[lane] : 1;
    if (!is_expect_only) wide_lanes(warp, i.slot[0])[lane] = barrier->phase;
    if (is_expect_only || i.flag2) barrier->tx += value;
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
  ++events_;
}

/// A failed test ends the warp's turn at the next backward branch.
void Cohort::mbarrier_wait(Warp& warp, const Instruction& i, uint32_t mask) {
  bool any = false;
  for (uint32_t left = mask; left != 0; left &= left - 1) {
    const int lane = std::countr_zero(left);
    const Site site{&warp, i.line, lane};
    const uint64_t address = lane_address(warp, i, i.slot[1], lane, i.offset);
    const Mbarrier* barrier = find_mbarrier(warp, cta_of(warp), address, site, races() ? &warp.clock : nullptr);
    bool is_over = false;
    if (barrier != nullptr && i.flag) is_over = (barrier->phase & 1) != (lanes(warp, i.slot[2])[lane] & 1);
    else if (barrier != nullptr) is_over = barrier->phase != static_cast<uint32_t>(wide_lanes(warp, i.slot[2])[lane]);
    lanes(warp, i.slot[0])[lane] = is_over ? ~0u : 0u;
    any |= is_over;
    if (is_over && races() && i.order != Order::relaxed)
      learn(warp, barrier->completed), merge(warp.foreign, barrier->foreign);
  }
  if (any) return;
  has_spun_ = true;
  ++counters_.barrier_waits;
}

}  // namespace seqtile::sim
