// jit/sim/exec/exits.cpp -- the end of lanes, warps and CTAs, and what must be over before it.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>

#include "jit/ptx/address.h"
#include "jit/sim/exec/cohort.h"

namespace seqtile::sim {

void Cohort::leave(Warp& warp, const Instruction& i, uint32_t mask) {
  Group& group = current(warp);
  warp.live &= ~mask;
  leave_cluster(warp, mask);
  ++events_;
  if (mask != group.mask) {
    group.mask &= ~mask;
    ++group.pc;
    return;
  }
  warp.groups.erase(warp.groups.begin() + current_);
  if (warp.groups.empty()) warp.is_done = true;
  if (warp.live == 0) check_exit(warp, i);
  Cta& cta = cta_of(warp);
  recheck_barriers(cta);
  if (warp.is_done) check_last_exit(warp, i);
}

void Cohort::check_exit(Warp& warp, const Instruction& i) {
  const bool has_copies = !warp.copies.empty() || !warp.copy_groups.empty();
  const auto is_unread = [](const BulkGroup& group) {
    return std::any_of(group.stores.begin(), group.stores.end(), [](const BulkStore& job) { return !job.is_read; });
  };
  const bool has_bulk = !warp.bulk.empty() || std::any_of(warp.bulk_groups.begin(), warp.bulk_groups.end(), is_unread);
  const bool has_wgmma = !warp.wgmmas.empty() || !warp.wgmma_groups.empty();
  if (checks_flight_ && (has_copies || has_bulk || has_wgmma))
    report(ReportKind::early_exit, {&warp, i.line, -1},
           fmt::format("the warp leaves with {} in flight", has_wgmma  ? "a wgmma"
                                                            : has_bulk ? "a bulk store"
                                                                       : "a cp.async"));
  // what is in flight still happens on a device
  for (BulkGroup& group : warp.bulk_groups)
    for (BulkStore& job : group.stores) finish_store(warp, job);
  for (BulkStore& job : warp.bulk) finish_store(warp, job);
}

/// setmaxnreg is for the four warps of a group.
void Cohort::check_groups(const Cta& cta, const Instruction& i) {
  for (int w = 0; w < cta.num_warps; ++w) {
    const Warp &warp = warps_[cta.first_warp + w], &first = warps_[cta.first_warp + (w & ~3)];
    if (warp.registers == first.registers) continue;
    return report(ReportKind::registers, {&warp, i.line, -1},
                  fmt::format("the warp ends with {} registers per thread, the first one of its group with {}: "
                              "setmaxnreg is for all four",
                              warp.registers, first.registers));
  }
}

/// The last warp of a CTA: loads and accesses by other CTAs of the cluster must lie before its end.
void Cohort::check_last_exit(Warp& warp, const Instruction& i) {
  Cta& cta = cta_of(warp);
  Clock known;
  for (int w = cta.first_warp; w < cta.first_warp + cta.num_warps; ++w) {
    if (!warps_[w].is_done) return;
    if (races()) join(known, warps_[w].clock);
  }
  cta.is_gone = true;
  check_groups(cta, i);
  if (!races()) return;
  for (const LoadUnderWay& load : cta.loads)
    if (checks_flight_ && load.time > known[load.thread])
      return report(ReportKind::early_exit, {&warp, i.line, -1},
                    fmt::format("the CTA ends although none of its warps has waited for the copy at PTX line {} by {}",
                                load.line, describe_thread(load.thread)));
  if (cta.remote.empty()) return;
  for (const Warp& other : warps_) {
    if (other.cta == warp.cta || cta.remote[other.id] <= known[other.id]) continue;
    return report(ReportKind::early_exit, {&warp, i.line, -1},
                  fmt::format("the CTA ends although an access to its shared memory by {} is not ordered before (a "
                              "cluster barrier is missing)",
                              describe_thread(static_cast<uint32_t>(other.id))));
  }
}

/// Notes a load in each CTA whose shared memory it touches. The CTA must know, when it ends, that the load is over.
void Cohort::note_load(const BulkLoad& job, const Site& site) {
  Cta& own = ctas_[job.cta];
  const auto note = [&](Cta& cta) {
    if (cta.is_gone)
      report(ReportKind::early_exit, site,
             fmt::format("copies into shared memory of CTA {}, which has ended", cta.linear));
    const auto known = std::find_if(cta.loads.begin(), cta.loads.end(),
                                    [&](const LoadUnderWay& load) { return load.thread == job.thread; });
    if (known != cta.loads.end()) *known = {job.thread, job.time, site.line};
    else cta.loads.push_back({job.thread, job.time, site.line});
  };
  const auto size = static_cast<uint32_t>(own.grid->cluster_size()), rank = job.to >> kRankShift;
  if (job.targets == 0 && rank == 0) note(own);
  if (job.from_shared && rank != 0) note(own);
  for (uint32_t r = 0; r < size; ++r)
    if ((job.targets >> r & 1) != 0 || (job.targets == 0 && rank == r + 1))
      note(ctas_[own.first_in_cluster + static_cast<int>(r)]);
}

}  // namespace seqtile::sim
