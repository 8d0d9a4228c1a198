// jit/sim/exec/calls.cpp -- calls of functions, returns, and branches through a table.
// SPDX-License-Identifier: Apache-2.0
//
// Each lane has a stack of its own in local memory, and a list of the calls that it is in. Lanes that called a function
// from different places run it together where they meet and part again when they return. The registers of functions
// lie in slots of their own, so that only a recursive call has to keep them.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "jit/ptx/address.h"
#include "jit/sim/exec/cohort.h"

namespace seqtile::sim {
namespace {

constexpr size_t kMaxDepth = 1000;  ///< calls that a lane may be in

template <class F>
void for_slots(const Function& function, F f) {
  for (const Function::Slots& range : function.slots)
    for (uint32_t slot = range.first; slot < range.end; slot += range.is_wide ? 2 : 1) f(slot, range.is_wide);
}

}  // namespace

/// Sends the lanes of `mask` to the instructions `to`; the current group's others go to the next one.
void Cohort::scatter(Warp& warp, uint32_t mask, const std::array<uint32_t, kWarpLanes>& to) {
  const uint32_t others = current(warp).mask & ~mask;
  std::vector<Group> parts;
  for_lanes(mask, [&](int lane) {
    const auto same = [&](const Group& group) { return group.pc == to[static_cast<size_t>(lane)]; };
    const auto part = std::find_if(parts.begin(), parts.end(), same);
    if (part != parts.end()) part->mask |= 1u << lane;
    else parts.push_back({to[static_cast<size_t>(lane)], 1u << lane, GroupState::running, 0});
  });
  if (others != 0) parts.push_back({current(warp).pc + 1, others, GroupState::running, 0});
  current(warp) = parts.front();
  warp.groups.insert(warp.groups.end(), parts.begin() + 1, parts.end());
}

void Cohort::branch_indexed(Warp& warp, const Instruction& i, uint32_t mask) {
  const uint32_t* targets = warp.grid->program->targets.data() + i.aux;
  const uint32_t* index = lanes(warp, i.slot[0]);
  std::array<uint32_t, kWarpLanes> to = {};
  for_lanes(mask, [&](int lane) {
    if (index[lane] >= i.target)
      report(ReportKind::out_of_bounds, {&warp, i.line, lane},
             fmt::format("target {} of a table of {}", index[lane], i.target));
    to[static_cast<size_t>(lane)] = targets[std::min(index[lane], i.target - 1)];
  });
  scatter(warp, mask, to);
}

/// False where a lane's stack has no room for the call: the launch ends.
bool Cohort::call(Warp& warp, const Instruction& i, uint32_t mask) {
  const Program& program = *warp.grid->program;
  const Call& call = program.calls[i.aux];
  const Function &caller = program.functions[call.caller], &callee = program.functions[call.callee];
  std::array<uint32_t, kWarpLanes> to = {};
  to.fill(callee.entry);
  for (uint32_t left = mask; left != 0; left &= left - 1) {
    const int lane = std::countr_zero(left);
    const uint32_t base = warp.frame_base[lane] + static_cast<uint32_t>(caller.frame_bytes);
    const size_t depth = warp.frames[lane].size() + 1;
    if (base + callee.frame_bytes > program.local_bytes || depth > kMaxDepth) {
      report(
          ReportKind::limit, {&warp, i.line, lane},
          fmt::format("{} calls within each other, with {} bytes of frames: at most {} calls and {} bytes are possible",
                      depth, base + callee.frame_bytes, kMaxDepth, program.local_bytes));
      is_stopped_ = true;
      return false;
    }
    enter(warp, call, i, lane, base);
  }
  scatter(warp, mask, to);
  return true;
}

/// Gives a lane the callee's frame, which begins at `base`, with its arguments.
void Cohort::enter(Warp& warp, const Call& call, const Instruction& i, int lane, uint32_t base) {
  const Program& program = *warp.grid->program;
  const Function &caller = program.functions[call.caller], &callee = program.functions[call.callee];
  Frame frame{current(warp).pc, warp.frame_base[lane], {}};
  std::byte* stack = warp.local.data() + static_cast<int64_t>(lane) * program.local_bytes;
  for (const CallMove& move : call.arguments) {
    if (move.operand < 0) {
      std::memmove(stack + base + move.of_callee, stack + frame.base + move.of_caller, static_cast<size_t>(move.bytes));
      continue;
    }
    const uint32_t slot = program.operands(i)[move.operand];
    const uint64_t value = move.bytes == 8 ? uint64_t{wide_lanes(warp, slot)[lane]} : lanes(warp, slot)[lane];
    std::memcpy(stack + base + move.of_callee, &value, static_cast<size_t>(move.bytes));
  }
  if (caller.is_recursive)
    for_slots(caller, [&](uint32_t slot, bool is_wide) {
      frame.kept.push_back(is_wide ? uint64_t{wide_lanes(warp, slot)[lane]} : lanes(warp, slot)[lane]);
    });
  for (const FrameSlot& slot : callee.frame_slots) {
    if (slot.is_wide) wide_lanes(warp, slot.slot)[lane] = slot.offset + base;
    else lanes(warp, slot.slot)[lane] = static_cast<uint32_t>(slot.offset + base);
  }
  warp.frames[lane].push_back(std::move(frame));
  warp.frame_base[lane] = base;
}

/// Gives a lane its caller's frame back, with the results; returns the instruction that it goes on with.
uint32_t Cohort::come_back(Warp& warp, int lane) {
  const Program& program = *warp.grid->program;
  const Frame frame = std::move(warp.frames[lane].back());
  warp.frames[lane].pop_back();
  const Instruction& i = program.code[frame.call_pc];
  const Call& call = program.calls[i.aux];
  size_t next = 0;
  if (!frame.kept.empty())
    for_slots(program.functions[call.caller], [&](uint32_t slot, bool is_wide) {
      if (is_wide) wide_lanes(warp, slot)[lane] = frame.kept[next++];
      else lanes(warp, slot)[lane] = static_cast<uint32_t>(frame.kept[next++]);
    });
  std::byte* stack = warp.local.data() + static_cast<int64_t>(lane) * program.local_bytes;
  const std::byte* from = stack + warp.frame_base[lane];
  for (const CallMove& move : call.results) {
    if (move.operand < 0) {
      std::memmove(stack + frame.base + move.of_caller, from + move.of_callee, static_cast<size_t>(move.bytes));
      continue;
    }
    uint64_t value = 0;
    std::memcpy(&value, from + move.of_callee, static_cast<size_t>(move.bytes));
    const uint32_t slot = program.operands(i)[move.operand];
    if (move.bytes == 8) wide_lanes(warp, slot)[lane] = value;
    else lanes(warp, slot)[lane] = static_cast<uint32_t>(value);
  }
  warp.frame_base[lane] = frame.base;
  return frame.call_pc + 1;
}

void Cohort::return_lanes(Warp& warp, uint32_t mask) {
  std::array<uint32_t, kWarpLanes> to = {};
  for_lanes(mask, [&](int lane) { to[static_cast<size_t>(lane)] = come_back(warp, lane); });
  scatter(warp, mask, to);
}

}  // namespace seqtile::sim
