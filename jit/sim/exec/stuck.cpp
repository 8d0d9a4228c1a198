// jit/sim/exec/stuck.cpp -- notices that a cohort does not come to its end, and says why: deadlocks, loops without end.
// SPDX-License-Identifier: Apache-2.0
//
// A deadlock is a rotation in which no warp can run, or many rotations in which warps run but change nothing that
// another warp could see: a spin counts more than a long computation. A warp that does not spin may be in a long loop,
// or in one without end: only its instructions count. A loop that no path of the text leaves is without end for
// certain.
#include <fmt/format.h>

#include <algorithm>
#include <thread>

#include "jit/ptx/address.h"
#include "jit/sim/exec/cohort.h"

namespace seqtile::sim {
namespace {

constexpr int kIdleLimit = 20000, kSpinWeight = 100;
/// Limit of instructions without an effect that other warps can see: so many for each warp, and for each byte of global
/// memory, since a loop that ends reads each byte a few times at most.
constexpr uint64_t kSilentPerWarp = uint64_t{1} << 20, kSilentPerByte = 8;
constexpr uint64_t kSilentLeast = uint64_t{1} << 22, kSilentMost = uint64_t{1} << 26;
/// Instructions that the cohort may still execute, and be reported for, when a warp is in a loop that no path leaves.
constexpr uint64_t kLostLimit = uint64_t{1} << 21;
constexpr uint64_t kToldAtOnce = uint64_t{1} << 16;
constexpr uint64_t kClockJump = uint64_t{1} << 40;  ///< lets every deadline of a kernel pass

}  // namespace

bool Cohort::note_idle(int64_t index) {
  if (idleness_ == 0) {
    idle_since_ = counters_.warp_instructions;
    for (Warp& warp : warps_) warp.has_waited = false;
    idleness_ = 1;
    return true;
  }
  const bool is_runnable = find_running(false) != nullptr;
  const Warp* endless = find_running(true);
  const uint64_t silent = counters_.warp_instructions - idle_since_;
  idleness_ += has_computed_ ? 1 : kSpinWeight;
  if (is_runnable && (endless ? silent < silent_limit() : idleness_ < kIdleLimit)) return true;
  // clusters that started earlier still run: what these warps wait for may come from there
  if (is_runnable && context_.finished_prefix.load() < index) {
    std::this_thread::yield();
    idleness_ = 0;
    return true;
  }
  if (is_runnable && has_read_clock_ && jumps_++ < 4) {
    now_ += kClockJump;
    idleness_ = 0;
    return true;
  }
  if (endless) report_limit(*endless, fmt::format("{} instructions of which other warps see nothing", silent));
  else report_deadlock();
  return false;
}

/// A bound that only the launch decides, so that a report does not depend on the machine's speed.
uint64_t Cohort::silent_limit() const {
  uint64_t bytes = 0;
  for (const auto& region : context_.memory.regions()) bytes += region->bytes;
  const uint64_t of_warps = std::max(kSilentLeast, kSilentPerWarp * warps_.size());
  return std::min(kSilentMost, of_warps + kSilentPerByte * std::min(bytes, kSilentMost));
}

/// Reports a warp in a loop that no path leaves, once the others have had their time.
bool Cohort::is_lost() {
  const auto is_in_loop = [](const Warp& warp) {
    const std::vector<bool>& never_ends = warp.grid->program->never_ends;
    return !never_ends.empty() && std::any_of(warp.groups.begin(), warp.groups.end(),
                                              [&](const Group& group) { return never_ends[group.pc]; });
  };
  if (!may_be_lost_) return false;
  const auto lost = std::find_if(warps_.begin(), warps_.end(), is_in_loop);
  if (lost == warps_.end()) return false;
  if (lost_since_ == 0) lost_since_ = counters_.warp_instructions;
  if (counters_.warp_instructions - lost_since_ < kLostLimit) return false;
  report_limit(*lost, fmt::format("{} instructions, in a loop that no path leaves", kLostLimit));
  return true;
}

/// Reports more instructions than a launch may have, counted from the `first` on.
bool Cohort::is_over_limit(uint64_t first) {
  const uint64_t limit = context_.options.instruction_limit;
  if (counters_.warp_instructions - first <= limit) return false;
  const Warp* running = find_running(false);
  report_limit(running ? *running : warps_.front(), fmt::format("{} instructions", limit));
  return true;
}

/// Updates LaunchProgress, which other threads read.
void Cohort::note_progress() {
  const uint64_t fresh = counters_.warp_instructions - counters_told_;
  if (fresh < kToldAtOnce) return;
  counters_told_ = counters_.warp_instructions;
  context_.progress.warp_instructions.fetch_add(fresh, std::memory_order_relaxed);
}

/// A warp that can run; with `that_never_waits` one that has not looked for what others do. Null: there is none.
const Warp* Cohort::find_running(bool that_never_waits) const {
  for (const Warp& warp : warps_)
    for (const Group& group : warp.groups)
      if (group.state == GroupState::running && !(that_never_waits && warp.has_waited)) return &warp;
  return nullptr;
}

void Cohort::report_deadlock() {
  const Warp* first = nullptr;
  for (const Warp& warp : warps_)
    if (!warp.is_done && first == nullptr) first = &warp;
  bool all_converging = first != nullptr;
  for (const Warp& warp : warps_)
    for (const Group& group : warp.groups) all_converging &= group.state == GroupState::converging;
  const Instruction& at = code(*first, first->groups.front().pc);
  for (const Warp& warp : warps_)
    for (const Group& group : warp.groups)
      if (const Instruction& i = code(warp, group.pc); i.op == Op::set_registers && group.state == GroupState::running)
        return report(ReportKind::registers, {&warp, i.line, -1},
                      fmt::format("{} registers per thread are never free, the CTA has {} left in all:",
                                  warp.regs[i.slot[0] * kWarpLanes], cta_of(warp).free_registers) +
                          describe_waits());
  if (all_converging)
    return report(ReportKind::divergence, {first, at.line, -1},
                  "only a part of the warp reaches an instruction that needs all of it:" + describe_waits());
  report(ReportKind::deadlock, {first, 0, -1}, "no warp can go on:" + describe_waits());
}

void Cohort::report_limit(const Warp& warp, const std::string& limit) {
  const auto running = std::find_if(warp.groups.begin(), warp.groups.end(),
                                    [](const Group& group) { return group.state == GroupState::running; });
  const int line = running == warp.groups.end() ? 0 : code(warp, running->pc).line;
  report(ReportKind::limit, {&warp, line, -1}, "still running after " + limit + ":" + describe_waits());
}

std::string Cohort::describe_group(const Warp& warp, const Group& group) const {
  const uint32_t pc = group.state == GroupState::at_barrier ? group.pc - 1 : group.pc;
  const Cta& cta = cta_of(warp);
  const Instruction& i = code(warp, pc);
  std::string text = fmt::format("device {} CTA {} at PTX line {} `{}`", warp.grid->device, cta.linear, i.line,
                                 warp.grid->program->module->line(i.line).substr(0, 80));
  if (group.state == GroupState::at_barrier) {
    const Barrier& barrier = cta.barriers[group.wait_for];
    text += fmt::format(" (barrier {}: {} of {} threads)", group.wait_for, barrier.arrived, barrier.expected);
  }
  if (group.state == GroupState::at_cluster) text += " (cluster barrier)";
  return text;
}

std::string Cohort::describe_waits() const {
  std::map<std::string, std::string> warps_at;
  for (const Warp& warp : warps_)
    for (const Group& group : warp.groups) {
      std::string& list = warps_at[describe_group(warp, group)];
      list += (list.empty() ? "" : ",") + std::to_string(warp.index);
    }
  std::string text;
  for (const auto& [place, list] : warps_at) text += fmt::format("\n  warp {} of {}", list, place);
  for (const Cta& cta : ctas_)
    for (const auto& [address, barrier] : cta.mbarriers)
      text +=
          fmt::format("\n  CTA {} mbarrier at shared + {}: phase {}, {} of {} arrivals missing, {} bytes outstanding",
                      cta.linear, address - kSharedBase, barrier.phase, barrier.pending, barrier.count, barrier.tx);
  return text;
}

}  // namespace seqtile::sim
