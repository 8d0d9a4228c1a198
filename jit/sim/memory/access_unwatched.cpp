// jit/sim/memory/access_unwatched.cpp -- the common weak loads and stores, when no check and no counter watches them.
// SPDX-License-Identifier: Apache-2.0
//
// All lanes are looked at first: where one of them is out of bounds, misaligned, in another CTA or in another region
// than the warp's last access, nothing is done and the general way (access.cpp) takes the instruction.
#include <cstring>

#include "jit/ptx/address.h"
#include "jit/sim/exec/cohort.h"

namespace seqtile::sim {
namespace {

/// Memory that the lanes of an instruction address: `bytes` from `address` on are at `begin`.
struct Window {
  std::byte* begin = nullptr;
  uint64_t address = 0, bytes = 0;
};

template <class T, class Lane>
void move_in(uint32_t mask, const std::byte* from, const uint64_t* offsets, Lane* to) {
  for_lanes(mask, [&](int lane) {
    T value;
    std::memcpy(&value, from + offsets[lane], sizeof(T));
    to[lane] = value;
  });
}

template <class T, class Lane>
void move_out(uint32_t mask, std::byte* to, const uint64_t* offsets, const Lane* from) {
  for_lanes(mask, [&](int lane) {
    const auto value = static_cast<T>(from[lane]);
    std::memcpy(to + offsets[lane], &value, sizeof(T));
  });
}

/// Elements as wide as their registers, or half-words in words.
bool is_common(const Instruction& i) {
  return i.order == Order::weak && (i.is_wide ? i.width == 8 : i.width == 4 || i.width == 2);
}

}  // namespace

/// The host's bytes of the instruction's space and each lane's offset in them; null where a lane does not fit.
std::byte* Cohort::unwatched(Warp& warp, const Instruction& i, uint32_t slot, uint32_t mask, bool is_write,
                             uint64_t (&offsets)[kWarpLanes]) {
  Window window;
  if (i.space == PtxSpace::shared) {
    Cta& cta = cta_of(warp);
    window = {cta.shared.data(), kSharedBase, cta.shared.size()};
  } else if (i.space == PtxSpace::global && warp.last_region != nullptr) {
    const Region& region = *warp.last_region;
    const bool is_reachable = region.device == warp.grid->device || region.is_peer_visible;
    const bool is_kept = region.is_constant || region.poisoned != nullptr || region.writers != nullptr;
    if (!is_reachable || region.watcher || (is_write && is_kept)) return nullptr;
    window = {region.begin, region.address(), region.bytes};
  }
  const uint64_t bytes = uint64_t{i.width} * i.vector;
  if (window.bytes < bytes) return nullptr;
  bool fits = true;
  for_lanes(mask, [&](int lane) {
    const uint64_t address = lane_address(warp, i, slot, lane, i.offset);
    offsets[lane] = (i.space == PtxSpace::shared ? address & 0xffffffff : address) - window.address;
    fits &= offsets[lane] <= window.bytes - bytes && (address & (bytes - 1)) == 0;
  });
  return fits ? window.begin : nullptr;
}

bool Cohort::load_unwatched(Warp& warp, const Instruction& i, uint32_t mask) {
  if (is_watched_ || !is_common(i)) return false;
  const uint32_t* operands = warp.grid->program->operands(i);
  uint64_t offsets[kWarpLanes];
  const std::byte* from = unwatched(warp, i, operands[i.vector], mask, false, offsets);
  if (from == nullptr) return false;
  for (uint32_t k = 0; k < i.vector; ++k, from += i.width) {
    if (i.is_wide) move_in<uint64_t>(mask, from, offsets, wide_lanes(warp, operands[k]));
    else if (i.width == 4) move_in<uint32_t>(mask, from, offsets, lanes(warp, operands[k]));
    else move_in<uint16_t>(mask, from, offsets, lanes(warp, operands[k]));
  }
  return true;
}

bool Cohort::store_unwatched(Warp& warp, const Instruction& i, uint32_t mask) {
  if (is_watched_ || !is_common(i)) return false;
  const uint32_t* operands = warp.grid->program->operands(i);
  uint64_t offsets[kWarpLanes];
  std::byte* to = unwatched(warp, i, operands[0], mask, true, offsets);
  if (to == nullptr) return false;
  ++events_;
  for (uint32_t k = 0; k < i.vector; ++k, to += i.width) {
    if (i.is_wide) move_out<uint64_t>(mask, to, offsets, wide_lanes(warp, operands[1 + k]));
    else if (i.width == 4) move_out<uint32_t>(mask, to, offsets, lanes(warp, operands[1 + k]));
    else move_out<uint16_t>(mask, to, offsets, lanes(warp, operands[1 + k]));
  }
  return true;
}

}  // namespace seqtile::sim
