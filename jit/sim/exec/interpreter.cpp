// jit/sim/exec/interpreter.cpp -- the instruction loop of a warp: groups, guards, branches, dispatch.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "jit/sim/exec/cohort.h"

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace seqtile::sim {
namespace {

/// Backward branches of one slice: enough to make progress, few enough that nobody starves.
constexpr int kBranchBudget = 4096, kDivergedBudget = 64;

uint32_t predicate_mask(const uint32_t* lanes) {
#if defined(__SSE2__)
  uint32_t mask = 0;
  for (int q = 0; q < 8; ++q) {
    const __m128i four = _mm_loadu_si128(reinterpret_cast<const __m128i*>(lanes + 4 * q));
    mask |= static_cast<uint32_t>(_mm_movemask_ps(_mm_castsi128_ps(four))) << (4 * q);
  }
  return mask;
#else
  uint32_t mask = 0;
  for (int i = 0; i < kWarpLanes; ++i) mask |= (lanes[i] & 1u) << i;
  return mask;
#endif
}

/// The lanes of a group that the instruction's guard lets execute it.
uint32_t executing(const Warp& warp, const Instruction& i, uint32_t group_mask) {
  if (i.guard < 0) return group_mask;
  const uint32_t holds = predicate_mask(warp.regs + i.guard * kWarpLanes);
  return group_mask & (i.is_guard_negated ? ~holds : holds);
}

}  // namespace

void Cohort::report(ReportKind kind, const Site& site, const std::string& message) {
  Report r{kind, site.line};
  std::string where = "kernel";
  if (site.warp != nullptr) {
    const Program& program = *site.warp->grid->program;
    r.cta = cta_of(*site.warp).linear, r.warp = site.warp->index, r.lane = site.lane,
    r.device = site.warp->grid->device;
    where = program.kernel;
    if (site.line > 0)
      where += fmt::format(", PTX line {} `{}`", site.line, program.module->line(site.line).substr(0, 96));
    where += fmt::format(", CTA {} warp {}", r.cta, r.warp);
    if (site.lane >= 0) where += fmt::format(" lane {}", site.lane);
    if (r.device != 0) where += fmt::format(" of device {}", r.device);
  }
  r.message = fmt::format("{}: {}: {}", report_kind_name(kind), where, message);
  context_.reports.add(std::move(r), number_);
  if (context_.reports.is_enough()) is_stopped_ = true;
}

/// Merges groups that stand at the same instruction, then takes the smallest one that can run.
int Cohort::pick_group(Warp& warp) {
  std::vector<Group>& groups = warp.groups;
  for (size_t a = 0; a < groups.size(); ++a) {
    for (size_t b = a + 1; b < groups.size();) {
      const bool can_merge = groups[a].pc == groups[b].pc && groups[a].state <= GroupState::converging &&
                             groups[b].state <= GroupState::converging;
      if (!can_merge) {
        ++b;
        continue;
      }
      groups[a].mask |= groups[b].mask;
      groups[a].state = GroupState::running;
      groups.erase(groups.begin() + static_cast<std::ptrdiff_t>(b));
    }
  }
  int best = -1, runnable = 0;
  for (size_t a = 0; a < groups.size(); ++a) {
    Group& group = groups[a];
    if (group.state == GroupState::converging &&
        (needed_lanes(warp, code(warp, group.pc), executing(warp, code(warp, group.pc), group.mask)) & ~group.mask) ==
            0)
      group.state = GroupState::running;
    if (group.state != GroupState::running) continue;
    ++runnable;
    if (best < 0 || group.pc < groups[best].pc) best = static_cast<int>(a);
  }
  if (runnable > 1 && warp.rotation > 0) {
    int skip = std::exchange(warp.rotation, 0) % runnable;
    for (size_t a = 0; a < groups.size(); ++a)
      if (groups[a].state == GroupState::running && skip-- == 0) return static_cast<int>(a);
  }
  return best;
}

/// The lanes that the member masks of `mask` name, which are an instruction's last operand.
uint32_t Cohort::member_lanes(const Warp& warp, const Instruction& i, uint32_t mask) {
  const uint32_t* const members = warp.regs + i.slot[i.num_operands - 1] * kWarpLanes;
  uint32_t differs = 0, named = 0;
  for (int lane = 0; lane < kWarpLanes; ++lane) differs |= members[lane] ^ members[0];
  if (differs == 0) return members[0];
  for_lanes(mask, [&](int lane) { named |= members[lane]; });
  return named;
}

/// The lanes that an instruction needs together: all that live, those that its member masks name, or none.
uint32_t Cohort::needed_lanes(const Warp& warp, const Instruction& i, uint32_t mask) const {
  uint32_t needed = warp.live;
  switch (i.op) {
    case Op::shuffle:
    case Op::vote:
    case Op::ballot:
    case Op::match_any:
    case Op::match_all:
    case Op::reduce_warp:
    case Op::elect:
    case Op::sync_warp: needed &= member_lanes(warp, i, mask); break;
    case Op::bar_sync:
    case Op::bar_arrive:
    case Op::bar_reduce:
    case Op::set_registers: break;
    case Op::load_matrix:
    case Op::store_matrix:
    case Op::mma:
    case Op::wmma_load:
    case Op::wmma_store:
    case Op::wmma:
    case Op::wgmma_fence:
    case Op::wgmma_commit:
    case Op::wgmma_wait:
    case Op::wgmma: return kAllLanes;
    default: return 0;
  }
  return needed;
}

/// Another group stands at this instruction, or one that comes first can run.
bool Cohort::meets_other_group(const Warp& warp) const {
  const uint32_t pc = warp.groups[current_].pc;
  for (size_t a = 0; a < warp.groups.size(); ++a) {
    const Group& other = warp.groups[a];
    if (static_cast<int>(a) == current_) continue;
    if (other.pc == pc && other.state <= GroupState::converging) return true;
    if (other.pc < pc && other.state == GroupState::running) return true;
  }
  return false;
}

void Cohort::run_slice(Warp& warp, uint32_t fuel) {
  current_ = pick_group(warp);
  int budget = warp.groups.size() > 1 ? kDivergedBudget : kBranchBudget;
  has_spun_ = false;
  const Instruction* const code_begin = warp.grid->program->code.data();
  const bool profile = context_.options.profile;
  while (current_ >= 0) {
    if (warp.groups.size() > 1 && meets_other_group(warp)) {
      current_ = pick_group(warp);
      continue;
    }
    Group& group = current(warp);
    if (fuel-- == 0) {
      has_computed_ |= !has_spun_;
      warp.rotation += warp.groups.size() > 1;
      return;
    }
    const Instruction& i = code_begin[group.pc];
    const uint32_t mask = i.guard < 0 ? group.mask : executing(warp, i, group.mask);
    ++counters_.warp_instructions;
    counters_.lane_instructions += mask == kAllLanes ? kWarpLanes : static_cast<uint64_t>(std::popcount(mask));
    if (profile) ++counters_.by_class[static_cast<size_t>(i.kind)];
    if (i.may_be_uninitialised && checks_initialised_) check_initialised(warp, i, mask, group.mask);
    if (mask == 0) {
      ++group.pc;
      continue;
    }
    if (i.touches_wgmma && checks_flight_) check_wgmma_registers(warp, i);
    if (i.op == Op::scalar) {
      i.scalar(warp.regs, i.num_operands <= 6 ? i.slot : warp.grid->program->operands(i), mask, i.aux);
      ++group.pc;
      continue;
    }
    if (i.op == Op::branch) {
      if (!branch(warp, i, mask, budget)) return;
      continue;
    }
    if (i.op == Op::branch_indexed || i.op == Op::call || i.op == Op::return_) {
      if (i.op == Op::branch_indexed) branch_indexed(warp, i, mask);
      else if (i.op == Op::return_) return_lanes(warp, mask);
      else if (!call(warp, i, mask)) return;
      if (--budget < 0) {  // also these may make a loop
        has_computed_ = true;
        return;
      }
      current_ = pick_group(warp);
      continue;
    }
    const uint32_t needed = needed_lanes(warp, i, mask);
    if ((needed & ~group.mask) != 0) {
      group.state = GroupState::converging;
      current_ = pick_group(warp);
      continue;
    }
    if ((needed & ~mask) != 0)
      report(ReportKind::divergence, {&warp, i.line, std::countr_zero(needed & ~mask)},
             "the guard leaves out a lane that the instruction needs");
    if (i.op == Op::leave) {
      leave(warp, i, mask);
      if (warp.is_done) return;
      current_ = pick_group(warp);
      continue;
    }
    const Flow flow = execute(warp, i, mask);
    if (is_stopped_) return;
    if (flow != Flow::retry) ++current(warp).pc;
    if (flow == Flow::next) continue;
    if (current(warp).state == GroupState::running) {  // waits for another warp; comes back here
      has_spun_ = true;
      return;
    }
    current_ = pick_group(warp);
  }
}

/// Moves the lanes of `mask` to the target; false ends the slice.
bool Cohort::branch(Warp& warp, const Instruction& i, uint32_t mask, int& budget) {
  Group& group = current(warp);
  const bool is_backward = i.target <= group.pc;
  const bool is_diverging = mask != group.mask;
  if (is_diverging) {
    const Group taken{i.target, mask, GroupState::running, 0};
    group.mask &= ~mask;
    ++group.pc;
    warp.groups.push_back(taken);
    budget = std::min(budget, kDivergedBudget);
  } else {
    group.pc = i.target;
  }
  if (is_backward && (has_spun_ || --budget < 0)) {
    has_computed_ |= !has_spun_;
    if (warp.groups.size() > 1) ++warp.rotation;
    return false;
  }
  if (is_diverging) current_ = pick_group(warp);
  return true;
}

void Cohort::check_initialised(Warp& warp, const Instruction& i, uint32_t mask, uint32_t group_mask) {
  const uint32_t* ids = warp.grid->program->virtual_pool.data() + i.pool;
  uint32_t missing = 0;
  const auto read = [&](uint32_t id, uint32_t lanes_read) {
    if (id != kNoRegister) missing |= lanes_read & ~warp.initialised[id];
  };
  if (i.guard >= 0) read(i.virtual_guard, group_mask);
  bool reads_accumulators = false;
  if (i.op == Op::wgmma && !i.flag2) {
    const uint32_t scale = warp.grid->program->operands(i)[i.num_destinations + (i.flag ? 5u : 2u)];
    reads_accumulators = lanes(warp, scale)[0] != 0;
  }
  for (uint32_t k = reads_accumulators ? 0 : i.num_destinations; k < i.num_operands; ++k) read(ids[k], mask);
  if (missing != 0)
    report(ReportKind::uninitialised_register, {&warp, i.line, std::countr_zero(missing)},
           "reads a register that was never written");
  for (uint32_t k = 0; k < i.num_destinations; ++k)
    if (ids[k] != kNoRegister) warp.initialised[ids[k]] |= mask;
}

/// Registers of a wgmma belong to it from its issue to its wait; and it sees only what was written before the fence.
void Cohort::check_wgmma_registers(Warp& warp, const Instruction& i) {
  if (i.op == Op::wgmma) return;
  const uint32_t* ids = warp.grid->program->virtual_pool.data() + i.pool;
  const Site site{&warp, i.line, -1};
  for (uint32_t k = 0; k < i.num_operands; ++k) {
    if (ids[k] == kNoRegister) continue;
    if (warp.busy_accumulator[ids[k]] != 0)
      return report(ReportKind::missing_wait, site, "the register is an accumulator of a wgmma in flight");
    if (warp.busy_fragment[ids[k]] != 0 && k < i.num_destinations)
      return report(ReportKind::missing_wait, site, "the register is an A fragment of a wgmma in flight");
    if (k < i.num_destinations) warp.written_after_fence[ids[k]] = warp.wgmma_fences + 1;
  }
}

Flow Cohort::execute(Warp& warp, const Instruction& i, uint32_t mask) {
  switch (i.op) {
    case Op::load: load(warp, i, mask); return Flow::next;
    case Op::store: store(warp, i, mask); return Flow::next;
    case Op::atomic: atomic(warp, i, mask); return Flow::next;
    case Op::shuffle:
    case Op::vote:
    case Op::ballot:
    case Op::match_any:
    case Op::match_all:
    case Op::reduce_warp:
    case Op::elect:
    case Op::sync_warp: with_members(warp, i, mask); return Flow::next;
    case Op::active_mask: fill(warp, i.slot[0], mask, mask); return Flow::next;
    case Op::read_clock: read_clock(warp, i, mask); return Flow::next;
    case Op::map_rank:
    case Op::rank_of: map_rank(warp, i, mask); return Flow::next;
    case Op::sleep: has_spun_ = true; return Flow::next;
    case Op::make_policy: for_lanes(mask, [&](int lane) { wide_lanes(warp, i.slot[0])[lane] = 0; }); return Flow::next;
    case Op::print: print(warp, i, mask); return Flow::next;
    case Op::assert_fail: assert_fail(warp, i, mask); return Flow::retry;
    case Op::trap:
      report(ReportKind::trap, {&warp, i.line, std::countr_zero(mask)}, "the kernel trapped");
      is_stopped_ = true;
      return Flow::retry;
    case Op::bar_sync:
    case Op::bar_arrive:
    case Op::bar_reduce: return bar(warp, i, mask);
    case Op::set_registers: return set_registers(warp, i);
    case Op::cluster_arrive: cluster_arrive(warp, i, mask); return Flow::next;
    case Op::cluster_wait: return cluster_wait(warp, i, mask);
    case Op::fence:
      if (races()) fence(warp, i.scope);
      return Flow::next;
    case Op::fence_async: ++warp.proxy_fences; return Flow::next;
    case Op::fence_init: fence_init(warp); return Flow::next;
    default: return execute_async(warp, i, mask);
  }
}

Flow Cohort::execute_async(Warp& warp, const Instruction& i, uint32_t mask) {
  switch (i.op) {
    case Op::mbarrier_init:
    case Op::mbarrier_inval: mbarrier_init(warp, i, mask); return Flow::next;
    case Op::mbarrier_arrive:
    case Op::mbarrier_complete:
    case Op::mbarrier_expect: mbarrier_arrive(warp, i, mask); return Flow::next;
    case Op::mbarrier_wait: mbarrier_wait(warp, i, mask); return Flow::next;
    case Op::copy_async: copy_async(warp, i, mask); return Flow::next;
    case Op::copy_commit:
      warp.copy_groups.push_back(std::move(warp.copies));
      warp.copies.clear();
      return Flow::next;
    case Op::copy_wait: copy_wait(warp, i, mask); return Flow::next;
    case Op::copy_arrive: copy_arrive(warp, i, mask); return Flow::next;
    case Op::tensor_load:
    case Op::bulk_load: bulk_load(warp, i, mask); return Flow::next;
    case Op::tensor_store:
    case Op::bulk_store: bulk_store(warp, i, mask); return Flow::next;
    case Op::bulk_commit: bulk_commit(warp, mask); return Flow::next;
    case Op::prefetch_map: prefetch_map(warp, i, mask); return Flow::next;
    case Op::bulk_wait: bulk_wait(warp, i, mask); return Flow::next;
    case Op::load_matrix: load_matrix(warp, i); return Flow::next;
    case Op::store_matrix: store_matrix(warp, i); return Flow::next;
    case Op::mma: mma(warp, i); return Flow::next;
    case Op::wmma_load: wmma_load(warp, i); return Flow::next;
    case Op::wmma_store: wmma_store(warp, i); return Flow::next;
    case Op::wmma: wmma(warp, i); return Flow::next;
    case Op::wgmma_fence: ++warp.wgmma_fences; return Flow::next;
    case Op::wgmma_commit:
      warp.wgmma_groups.push_back(std::move(warp.wgmmas));
      warp.wgmmas.clear();
      return Flow::next;
    case Op::wgmma_wait: return wgmma_wait(warp, i);
    case Op::wgmma: issue_wgmma(warp, i); return Flow::next;
    default: return Flow::next;  // prefetches and hints
  }
}

}  // namespace seqtile::sim
