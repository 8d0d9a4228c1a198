// jit/sim/exec/warp_ops.cpp -- operations between the lanes of a warp: shuffles, votes, matches, reductions.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "jit/ptx/address.h"
#include "jit/sim/exec/cohort.h"

namespace seqtile::sim {

/// Executes an instruction of lanes together, once for each member mask: lanes with one mask are one set.
void Cohort::with_members(Warp& warp, const Instruction& i, uint32_t mask) {
  const uint32_t* const members = lanes(warp, i.slot[i.num_operands - 1]);
  uint32_t differs = 0;
  for (int lane = 0; lane < kWarpLanes; ++lane) differs |= members[lane] ^ members[0];
  if (differs == 0 && (mask & ~members[0]) == 0) return execute_together(warp, i, mask);
  for (uint32_t left = mask; left != 0;) {
    const int first = std::countr_zero(left);
    const uint32_t named = members[first];
    uint32_t together = 0;
    for_lanes(left, [&](int lane) { together |= members[lane] == named ? 1u << lane : 0; });
    left &= ~together;
    if ((together & ~named) != 0)
      report(ReportKind::divergence, {&warp, i.line, std::countr_zero(together & ~named)},
             fmt::format("the lane's member mask 0x{:x} does not name it", named));
    else if ((named & mask & ~together) != 0)
      report(
          ReportKind::divergence, {&warp, i.line, first},
          fmt::format("the member mask 0x{:x} names lane {}, whose own is 0x{:x}", named,
                      std::countr_zero(named & mask & ~together), members[std::countr_zero(named & mask & ~together)]));
    execute_together(warp, i, together);
  }
}

void Cohort::execute_together(Warp& warp, const Instruction& i, uint32_t mask) {
  switch (i.op) {
    case Op::shuffle: return shuffle(warp, i, mask);
    case Op::match_any: return match_any(warp, i, mask);
    case Op::match_all: return match_all(warp, i, mask);
    case Op::reduce_warp: return reduce_warp(warp, i, mask);
    case Op::elect: return elect(warp, i, mask);
    case Op::sync_warp:
      if (races()) publish(warp);
      return;
    default: return vote(warp, i, mask);
  }
}

void Cohort::fill(Warp& warp, uint32_t slot, uint32_t mask, uint32_t value) {
  uint32_t* to = lanes(warp, slot);
  for_lanes(mask, [&](int lane) { to[lane] = value; });
}

/// The third operand packs the segment mask (bits 8 to 12) and the clamp (bits 0 to 4).
void Cohort::shuffle(Warp& warp, const Instruction& i, uint32_t mask) {
  enum { up, down, bfly, idx };
  const uint32_t* s = warp.grid->program->operands(i) + i.num_destinations;
  uint32_t source[kWarpLanes];
  std::memcpy(source, lanes(warp, s[0]), sizeof(source));
  const uint32_t* const b = lanes(warp, s[1]);
  const uint32_t* const c = lanes(warp, s[2]);
  uint32_t from[kWarpLanes], is_valid[kWarpLanes], outside = 0;
  for_lanes(mask, [&](int lane) {
    const auto l = static_cast<uint32_t>(lane);
    const uint32_t amount = b[lane] & 31, clamp = c[lane] & 31, segment = c[lane] >> 8 & 31;
    const uint32_t top = (l & segment) | (clamp & ~segment), bottom = l & segment;
    const uint32_t j = i.aux == up     ? l - amount
                       : i.aux == down ? l + amount
                       : i.aux == bfly ? l ^ amount
                                       : bottom | (amount & ~segment);
    const bool holds = i.aux == up ? static_cast<int32_t>(j) >= static_cast<int32_t>(top) : j <= top;
    from[lane] = holds ? j & 31 : l;
    is_valid[lane] = holds ? ~0u : 0u;
  });
  if (mask != kAllLanes) for_lanes(mask, [&](int lane) { outside |= (~mask >> from[lane] & 1) << lane; });
  if (outside != 0) {
    const int lane = std::countr_zero(outside);
    report(ReportKind::divergence, {&warp, i.line, lane},
           fmt::format("the lane takes the value of lane {}, which does not take part", from[lane]));
  }
  uint32_t* const d = lanes(warp, i.slot[0]);
  for_lanes(mask, [&](int lane) { d[lane] = source[from[lane]]; });
  if (i.num_destinations == 2) {
    uint32_t* const p = lanes(warp, i.slot[1]);
    for_lanes(mask, [&](int lane) { p[lane] = is_valid[lane]; });
  }
}

void Cohort::vote(Warp& warp, const Instruction& i, uint32_t mask) {
  uint32_t votes = 0;
  const uint32_t* const p = lanes(warp, i.slot[1]);
  for_lanes(mask, [&](int lane) { votes |= p[lane] != 0 ? 1u << lane : 0; });
  if (i.op == Op::ballot) return fill(warp, i.slot[0], mask, votes);
  const bool all = votes == mask, any = votes != 0;
  const bool result = i.aux == 0 ? all : i.aux == 1 ? any : all || !any;
  fill(warp, i.slot[0], mask, result ? ~0u : 0u);
}

void Cohort::match_any(Warp& warp, const Instruction& i, uint32_t mask) {
  const auto value = [&](int lane) {
    return i.is_wide ? uint64_t{wide_lanes(warp, i.slot[1])[lane]} : uint64_t{lanes(warp, i.slot[1])[lane]};
  };
  uint32_t result[kWarpLanes];
  for_lanes(mask, [&](int lane) {
    result[lane] = 0;
    for_lanes(mask, [&](int other) { result[lane] |= value(other) == value(lane) ? 1u << other : 0; });
  });
  uint32_t* const d = lanes(warp, i.slot[0]);
  for_lanes(mask, [&](int lane) { d[lane] = result[lane]; });
}

void Cohort::match_all(Warp& warp, const Instruction& i, uint32_t mask) {
  const uint32_t slot = i.slot[i.num_destinations];
  const auto value = [&](int lane) {
    return i.is_wide ? uint64_t{wide_lanes(warp, slot)[lane]} : uint64_t{lanes(warp, slot)[lane]};
  };
  bool are_equal = true;
  for_lanes(mask, [&](int lane) { are_equal &= value(lane) == value(std::countr_zero(mask)); });
  fill(warp, i.slot[0], mask, are_equal ? mask : 0);
  if (i.num_destinations == 2) fill(warp, i.slot[1], mask, are_equal ? ~0u : 0u);
}

namespace {

/// `aux`: bit 0 the magnitudes, bit 1 a NaN wins.
uint32_t reduce_floats(const uint32_t* values, const Instruction& i, uint32_t mask) {
  float result = std::numeric_limits<float>::quiet_NaN();
  bool has_nan = false;
  for_lanes(mask, [&](int lane) {
    float value = std::bit_cast<float>(values[lane]);
    if ((i.aux & 1) != 0) value = std::fabs(value);
    has_nan |= value != value;
    result = i.atomic == AtomicOp::min ? std::fmin(result, value) : std::fmax(result, value);
  });
  if (has_nan && (i.aux & 2) != 0) result = std::numeric_limits<float>::quiet_NaN();
  return std::bit_cast<uint32_t>(result);
}

}  // namespace

void Cohort::reduce_warp(Warp& warp, const Instruction& i, uint32_t mask) {
  const uint32_t* const a = lanes(warp, i.slot[1]);
  if (i.type == PtxType::f32) return fill(warp, i.slot[0], mask, reduce_floats(a, i, mask));
  uint32_t result = a[std::countr_zero(mask)];
  for (uint32_t left = mask & (mask - 1); left != 0; left &= left - 1) {
    const uint32_t value = a[std::countr_zero(left)];
    const bool is_less =
        i.type == PtxType::s32 ? static_cast<int32_t>(value) < static_cast<int32_t>(result) : value < result;
    switch (i.atomic) {
      case AtomicOp::add: result += value; break;
      case AtomicOp::min: result = is_less ? value : result; break;
      case AtomicOp::max: result = is_less ? result : value; break;
      case AtomicOp::bit_and: result &= value; break;
      case AtomicOp::bit_or: result |= value; break;
      default: result ^= value; break;
    }
  }
  fill(warp, i.slot[0], mask, result);
}

/// The lowest lane of the mask is elected.
void Cohort::elect(Warp& warp, const Instruction& i, uint32_t mask) {
  const int leader = std::countr_zero(mask);
  fill(warp, i.slot[0], mask, static_cast<uint32_t>(leader));
  fill(warp, i.slot[1], mask, 0);
  lanes(warp, i.slot[1])[leader] = ~0u;
}

void Cohort::read_clock(Warp& warp, const Instruction& i, uint32_t mask) {
  has_read_clock_ = true;
  if (i.is_wide) for_lanes(mask, [&](int lane) { wide_lanes(warp, i.slot[0])[lane] = time_ns(); });
  else fill(warp, i.slot[0], mask, static_cast<uint32_t>(time_ns()));
}

void Cohort::map_rank(Warp& warp, const Instruction& i, uint32_t mask) {
  const auto address = [&](int lane) {
    return i.is_wide ? uint64_t{wide_lanes(warp, i.slot[1])[lane]} : uint64_t{lanes(warp, i.slot[1])[lane]};
  };
  for_lanes(mask, [&](int lane) {
    const uint64_t a = address(lane);
    if (i.op == Op::rank_of) {
      const auto rank = static_cast<uint32_t>(a >> kRankShift & 0xff);
      lanes(warp, i.slot[0])[lane] = rank == 0 ? static_cast<uint32_t>(cta_of(warp).rank) : rank - 1;
      return;
    }
    const uint64_t mapped = (a & ~(uint64_t{0xff} << kRankShift)) | uint64_t{lanes(warp, i.slot[2])[lane] + 1}
                                                                        << kRankShift;
    if (i.is_wide) wide_lanes(warp, i.slot[0])[lane] = mapped;
    else lanes(warp, i.slot[0])[lane] = static_cast<uint32_t>(mapped);
  });
}

}  // namespace seqtile::sim
