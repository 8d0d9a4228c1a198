// jit/sim/memory/barriers.cpp -- named barriers, the cluster barrier, and the pool of registers that setmaxnreg deals
// out.
// SPDX-License-Identifier: Apache-2.0
//
// A warp can be in two waits at once (one lane spins on an mbarrier, the others stand at the cluster barrier), so it is
// groups that wait, not warps, and arrivals at the cluster barrier are counted per lane.
#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "jit/ptx/address.h"
#include "jit/sim/exec/cohort.h"

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
  const uint32_t* slots = i.slot + i.num_destinations;
  uint32_t number = lanes(warp, slots[0])[lane];
  const uint32_t threads = lanes(warp, slots[1])[lane];
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
  if (i.op == Op::bar_reduce)
    for_lanes(mask, [&](int l) {
      const bool holds = (lanes(warp, slots[2])[l] != 0) != i.flag2;
      ++(holds ? barrier.votes : barrier.against);
    });
  if (i.op == Op::bar_arrive) {
    if (races()) publish(warp);
    ++events_;
  } else {
    barrier.waiting.push_back({warp.id, &i, mask});
    current(warp).state = GroupState::at_barrier;
    current(warp).wait_for = number;
  }
  const uint32_t expected = barrier.is_open_count ? std::min(threads, live_threads(cta)) : threads;
  if (barrier.arrived >= expected) complete_barrier(cta, number);
  else if (i.op != Op::bar_arrive) ++counters_.barrier_waits;
  return current(warp).state == GroupState::running ? Flow::next : Flow::park;
}

void Cohort::complete_barrier(Cta& cta, uint32_t number) {
  Barrier& barrier = cta.barriers[number];
  for (const Barrier::Waiting& waiting : barrier.waiting) {
    Warp& warp = warps_[waiting.warp];
    if (waiting.at->op == Op::bar_reduce) give_votes(warp, *waiting.at, waiting.mask, barrier);
    for (Group& group : warp.groups)
      if (group.state == GroupState::at_barrier && group.wait_for == number) group.state = GroupState::running;
    if (races()) learn(warp, barrier.clock), merge(warp.foreign, barrier.foreign), publish(warp);
  }
  barrier.arrived = barrier.votes = barrier.against = 0;
  barrier.waiting.clear();
  barrier.clock.clear();
  barrier.foreign = nullptr;
  ++events_;
}

void Cohort::give_votes(Warp& warp, const Instruction& i, uint32_t mask, const Barrier& barrier) {
  const bool holds = i.atomic == AtomicOp::bit_and ? barrier.against == 0 : barrier.votes > 0;
  fill(warp, i.slot[0], mask, i.atomic == AtomicOp::add ? barrier.votes : holds ? ~0u : 0u);
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
  if (const uint32_t again = warp.at_cluster & mask; again != 0)
    report(ReportKind::barrier, {&warp, i.line, std::countr_zero(again)},
           "the lane arrives at the cluster barrier a second time without a wait between");
  warp.at_cluster |= mask;
  if (races() && !i.flag) join(cluster.clock, warp.clock), merge(cluster.foreign, warp.foreign), publish(warp);
  if (races() && i.flag) arrive_relaxed(warp, cluster);
  for_lanes(mask, [&](int lane) { warp.cluster_phase[lane] = cluster.phase; });
  cluster.arrived += static_cast<uint32_t>(std::popcount(mask));
  check_cluster(cluster);
}

/// Brings along what fences before it have released, the inits of mbarriers that fence.mbarrier_init covers, no more.
void Cohort::arrive_relaxed(Warp& warp, ClusterState& cluster) {
  for (size_t scope = static_cast<size_t>(Scope::cluster); scope < warp.fence_release.size(); ++scope) {
    join(cluster.clock, warp.fence_release[scope]);
    merge(cluster.foreign, warp.fence_foreign[scope]);
  }
  const uint32_t inits = init_thread(warp.cta);
  if (cluster.clock.size() < num_threads()) cluster.clock.resize(num_threads());
  cluster.clock[inits] = std::max(cluster.clock[inits], warp.clock[inits]);
  join(cluster.relaxed, warp.clock);
}

/// A lane that ends after its arrival is not waited for, and its arrival does not count.
void Cohort::leave_cluster(const Warp& warp, uint32_t mask) {
  ClusterState& cluster = clusters_[cta_of(warp).cluster];
  for_lanes(mask & warp.at_cluster, [&](int lane) { cluster.arrived -= warp.cluster_phase[lane] == cluster.phase; });
  check_cluster(cluster);
}

Flow Cohort::cluster_wait(Warp& warp, const Instruction& i, uint32_t mask) {
  const ClusterState& cluster = clusters_[cta_of(warp).cluster];
  if (const uint32_t missing = mask & ~warp.at_cluster; missing != 0) {
    report(ReportKind::barrier, {&warp, i.line, std::countr_zero(missing)},
           "the lane waits at the cluster barrier without an arrival before");
    return Flow::next;
  }
  const uint32_t phase = warp.cluster_phase[std::countr_zero(mask)];
  if (phase < cluster.phase) {
    warp.at_cluster &= ~mask;
    if (races() && !cluster.released.empty()) learn(warp, cluster.released), merge(warp.foreign, cluster.foreign);
    if (races() && !cluster.relaxed_released.empty()) join(warp.relaxed_seen, cluster.relaxed_released);
    return Flow::next;
  }
  ++counters_.barrier_waits;
  current(warp).state = GroupState::at_cluster;
  current(warp).wait_for = phase;
  return Flow::retry;
}

/// A warp that asks for more registers waits until others have given back enough.
Flow Cohort::set_registers(Warp& warp, const Instruction& i) {
  Cta& cta = cta_of(warp);
  const Site site{&warp, i.line, -1};
  const auto wanted = static_cast<int>(lanes(warp, i.slot[0])[0]);
  if (wanted < 24 || wanted > 256 || wanted % 8 != 0)
    report(ReportKind::registers, site, fmt::format("{} registers: 24 to 256 in steps of 8", wanted));
  if (i.flag ? wanted < warp.registers : wanted > warp.registers)
    report(ReportKind::registers, site,
           fmt::format("from {} to {} registers is no {}", warp.registers, wanted, i.flag ? "increase" : "decrease"));
  const int needed = (wanted - warp.registers) * kWarpLanes;
  if (needed > cta.free_registers) return Flow::retry;
  cta.free_registers -= needed;
  warp.registers = wanted;
  ++events_;
  return Flow::next;
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
  cluster.relaxed_released = cluster.relaxed;
  ++events_;
  for (int w = first_warp; w < end_warp; ++w)
    for (Group& group : warps_[w].groups)
      if (group.state == GroupState::at_cluster && group.wait_for < cluster.phase) group.state = GroupState::running;
}

}  // namespace seqtile::sim
