// jit/sim/access.cpp -- loads, stores and atomics in every address space, with bounds and alignment.
// SPDX-License-Identifier: Apache-2.0
//
// A refused access is reported and goes to a spare buffer, so that one fault does not hide the next one.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "jit/sim/address.h"
#include "jit/sim/cohort.h"

namespace seqtile::sim {
namespace {

uint64_t read_element(const std::byte* from, uint32_t width) {
  uint64_t value = 0;
  std::memcpy(&value, from, width);
  return value;
}

bool is_signed_type(PtxType type) { return type == PtxType::s8 || type == PtxType::s16 || type == PtxType::s32; }

uint64_t extend(uint64_t value, const Instruction& i) {
  if (!is_signed_type(i.type)) return value;
  const int unused = 64 - 8 * i.width;
  const auto wide = static_cast<uint64_t>(static_cast<int64_t>(value << unused) >> unused);
  // a 16-bit register holds its value zero extended
  return i.is_wide ? wide : i.width == 2 ? wide & 0xffff : wide & 0xffffffff;
}

template <class T>
T combine(AtomicOp op, T old, T value, T compare) {
  switch (op) {
    case AtomicOp::add: return old + value;
    case AtomicOp::min: return std::min(old, value);
    case AtomicOp::max: return std::max(old, value);
    case AtomicOp::exch: return value;
    case AtomicOp::cas: return old == compare ? value : old;
    default: break;
  }
  if constexpr (std::is_unsigned_v<T>) {
    if (op == AtomicOp::inc) return old >= value ? 0 : old + 1;
    if (op == AtomicOp::dec) return old == 0 || old > value ? value : old - 1;
    if (op == AtomicOp::bit_and) return old & value;
    if (op == AtomicOp::bit_or) return old | value;
    if (op == AtomicOp::bit_xor) return old ^ value;
  }
  return old;
}

uint32_t combine_half(AtomicOp op, uint32_t old, uint32_t value, bool is_bfloat) {
  const auto widen = [&](uint32_t bits) {
    return is_bfloat ? bf16_to_float(bits & 0xffff) : half_to_float(bits & 0xffff);
  };
  const auto narrow = [&](float f) { return is_bfloat ? float_to_bf16(f) : float_to_half(f); };
  return narrow(combine<float>(op, widen(old), widen(value), 0));
}

/// The element after a read-modify-write, as bits.
uint64_t apply_atomic(const Instruction& i, uint64_t old, uint64_t value, uint64_t compare) {
  const AtomicOp op = i.atomic;
  if (op == AtomicOp::exch) return value;
  if (op == AtomicOp::cas) return old == compare ? value : old;
  const auto old32 = static_cast<uint32_t>(old), value32 = static_cast<uint32_t>(value);
  switch (i.type) {
    case PtxType::f32:
      return std::bit_cast<uint32_t>(combine(op, std::bit_cast<float>(old32), std::bit_cast<float>(value32), 0.0f));
    case PtxType::f64:
      return std::bit_cast<uint64_t>(combine(op, std::bit_cast<double>(old), std::bit_cast<double>(value), 0.0));
    case PtxType::f16: return combine_half(op, old32, value32, false);
    case PtxType::bf16: return combine_half(op, old32, value32, true);
    case PtxType::f16x2:
    case PtxType::bf16x2: {
      const bool is_bfloat = i.type == PtxType::bf16x2;
      return combine_half(op, old32, value32, is_bfloat) | combine_half(op, old32 >> 16, value32 >> 16, is_bfloat)
                                                               << 16;
    }
    case PtxType::s32:
      if (op == AtomicOp::min || op == AtomicOp::max)
        return static_cast<uint32_t>(combine(op, static_cast<int32_t>(old32), static_cast<int32_t>(value32), 0));
      return combine(op, old32, value32, 0u);
    case PtxType::s64:
      if (op == AtomicOp::min || op == AtomicOp::max)
        return static_cast<uint64_t>(combine(op, static_cast<int64_t>(old), static_cast<int64_t>(value), int64_t{0}));
      return combine(op, old, value, uint64_t{0});
    default: return i.width == 8 ? combine(op, old, value, uint64_t{0}) : combine(op, old32, value32, 0u);
  }
}

}  // namespace

uint64_t Cohort::lane_address(const Warp& warp, const Instruction& i, uint32_t slot, int lane, int64_t offset) const {
  const uint64_t base =
      i.is_address_wide ? wide_lanes(warp, slot)[lane] : warp.regs[slot * kWarpLanes + static_cast<uint32_t>(lane)];
  return base + static_cast<uint64_t>(offset);
}

/// The space of a generic address; strips its window.
PtxSpace Cohort::space_of(const Instruction& i, uint64_t& address) const {
  if (i.space != PtxSpace::generic) {
    if (i.space == PtxSpace::shared) address &= 0xffffffff;
    return i.space == PtxSpace::constant ? PtxSpace::global : i.space;
  }
  if (address & kParamWindow) return PtxSpace::param;
  if (address & kLocalWindow) return address &= ~kLocalWindow, PtxSpace::local;
  if (address & kSharedWindow) return address &= ~kSharedWindow, PtxSpace::shared;
  return PtxSpace::global;
}

std::byte* Cohort::refuse(ReportKind kind, const Site& site, const std::string& message) {
  report(kind, site, message);
  std::memset(refused_, 0, sizeof(refused_));
  return refused_;
}

std::byte* Cohort::global(Warp& warp, uint64_t address, uint32_t bytes, const Site& site, bool is_write) {
  Region* region = warp.last_region;
  if (region == nullptr || address < region->address() || address + bytes > region->end()) {
    region = context_.memory.find(address);
    if (region == nullptr || address + bytes > region->end())
      return refuse(ReportKind::out_of_bounds, site,
                    fmt::format("global access of {} bytes at {}", bytes, context_.memory.describe(address)));
    warp.last_region = region;
  }
  if (address & (bytes - 1))
    return refuse(ReportKind::misaligned, site,
                  fmt::format("global access of {} bytes at {}", bytes, context_.memory.describe(address)));
  if (is_write && region->is_constant)
    return refuse(ReportKind::read_only, site, "store to " + context_.memory.describe(address));
  if (region->device != warp.grid->device && !region->is_peer_visible)
    report(ReportKind::private_memory, site,
           fmt::format("{} belongs to device {}", context_.memory.describe(address), region->device));
  return region->begin + (address - region->address());
}

/// The CTA that a shared address names; leaves the offset in `address`.
Cta* Cohort::cta_of(Cta& own, uint32_t& address, const Site& site) {
  const uint32_t rank = address >> kRankShift;
  address &= kSharedOffsetMask;
  if (rank == 0) return &own;
  if (rank > static_cast<uint32_t>(own.grid->cluster_size())) {
    report(ReportKind::out_of_bounds, site, fmt::format("rank {} is not in the cluster", rank - 1));
    return &own;
  }
  Cta& other = ctas_[own.first_in_cluster + static_cast<int>(rank) - 1];
  if (other.is_gone)
    report(ReportKind::early_exit, site,
           fmt::format("access to shared memory of CTA {}, which has ended", other.linear));
  return &other;
}

std::byte* Cohort::shared(Cta& cta, uint32_t address, uint32_t bytes, const Site& site) {
  const uint32_t offset = address - kSharedBase;
  if (offset < cta.shared.size() && offset + bytes <= cta.shared.size() && (address & (bytes - 1)) == 0)
    return cta.shared.data() + offset;
  const auto shown = static_cast<int32_t>(offset);
  if ((address & (bytes - 1)) != 0)
    return refuse(ReportKind::misaligned, site, fmt::format("shared access of {} bytes at shared + {}", bytes, shown));
  return refuse(ReportKind::out_of_bounds, site,
                fmt::format("shared access of {} bytes at shared + {} of {}", bytes, shown, cta.shared.size()));
}

std::byte* Cohort::local(Warp& warp, uint64_t address, uint32_t bytes, const Site& site) {
  const auto size = static_cast<uint64_t>(warp.grid->program->local_bytes);
  const uint64_t offset = address - kLocalBase;
  if (offset >= size || offset + bytes > size)
    return refuse(
        ReportKind::out_of_bounds, site,
        fmt::format("local access of {} bytes at local + {} of {}", bytes, static_cast<int64_t>(offset), size));
  if ((address & (bytes - 1)) != 0)
    return refuse(ReportKind::misaligned, site, fmt::format("local access of {} bytes at local + {}", bytes, offset));
  return warp.local.data() + static_cast<uint64_t>(site.lane) * size + offset;
}

std::byte* Cohort::resolve(Warp& warp, PtxSpace space, uint64_t address, uint32_t bytes, const Site& site,
                           bool is_write) {
  if (space == PtxSpace::global) return global(warp, address, bytes, site, is_write);
  if (space == PtxSpace::local) return local(warp, address, bytes, site);
  if (space == PtxSpace::shared) {
    auto narrow = static_cast<uint32_t>(address);
    Cta* cta = cta_of(cta_of(warp), narrow, site);
    return shared(*cta, narrow, bytes, site);
  }
  const uint64_t offset = address - kParamWindow;
  const std::vector<std::byte>& params = warp.grid->params;
  if (is_write) return refuse(ReportKind::read_only, site, "store to a kernel parameter");
  if (offset + bytes > params.size())
    return refuse(ReportKind::out_of_bounds, site,
                  fmt::format("parameter bytes {} to {} of {}", offset, offset + bytes, params.size()));
  return const_cast<std::byte*>(params.data()) + offset;
}

void Cohort::check_load(Warp& warp, const Instruction& i, PtxSpace space, uint64_t address, uint32_t bytes,
                        const Site& site) {
  if (space == PtxSpace::shared && tracks_shared()) {
    auto narrow = static_cast<uint32_t>(address);
    Cta* cta = cta_of(cta_of(warp), narrow, site);
    shared_read(*cta, narrow, bytes, static_cast<uint32_t>(warp.id), warp.clock, site, false);
  } else if (space == PtxSpace::global) {
    if (checks_initialised_) note_poison_read(warp, address, bytes, site);
    if (races()) global_access(warp, address, bytes, {false, i.order != Order::weak, false, i.scope}, warp.clock, site);
  }
}

void Cohort::check_store(Warp& warp, const Instruction& i, PtxSpace space, uint64_t address, uint32_t bytes,
                         const Site& site) {
  if (space == PtxSpace::shared && tracks_shared()) {
    auto narrow = static_cast<uint32_t>(address);
    Cta* cta = cta_of(cta_of(warp), narrow, site);
    shared_write(*cta, narrow, bytes, static_cast<uint32_t>(warp.id), warp.clock, site, false);
  } else if (space == PtxSpace::global) {
    note_write(warp, address, bytes, site);
    if (races())
      global_access(warp, address, bytes, {true, i.order != Order::weak, i.op == Op::atomic, i.scope}, warp.clock,
                    site);
  }
}

void Cohort::note_poison_read(Warp& warp, uint64_t address, uint32_t bytes, const Site& site) {
  const Region* region = warp.last_region;
  if (region == nullptr || region->poisoned == nullptr) return;
  const uint64_t offset = address - region->address();
  if (offset + bytes > region->bytes) return;
  for (uint64_t b = offset; b < offset + bytes; ++b)
    if (region->poisoned[b] != 0)
      return report(ReportKind::uninitialised_memory, site,
                    fmt::format("global read at {}", context_.memory.describe(address)));
}

void Cohort::note_write(Warp& warp, uint64_t address, uint32_t bytes, const Site& site) {
  Region* region = warp.last_region;
  if (region == nullptr || (region->poisoned == nullptr && region->writers == nullptr)) return;
  const uint64_t offset = address - region->address();
  if (offset + bytes > region->bytes) return;
  if (region->poisoned != nullptr) std::memset(&region->poisoned[offset], 0, bytes);
  if (region->writers == nullptr) return;
  for (uint64_t w = offset / 4; w <= (offset + bytes - 1) / 4; ++w)
    region->writers[w] = {site.line, cta_of(warp).linear, warp.index, site.lane};
}

void Cohort::load_param(Warp& warp, const Instruction& i, uint32_t mask) { load(warp, i, mask); }

void Cohort::load(Warp& warp, const Instruction& i, uint32_t mask) {
  const uint32_t* operands = warp.grid->program->operands(i);
  const uint32_t bytes = uint32_t{i.width} * i.vector, address_slot = operands[i.vector];
  std::unique_lock lock(context_.sync_mutex, std::defer_lock);
  if (i.order != Order::weak) {
    has_spun_ = true;
    if (context_.is_parallel) lock.lock();
  }
  uint64_t addresses[kWarpLanes];
  PtxSpace space = i.space;
  for (uint32_t left = mask; left != 0; left &= left - 1) {
    const int lane = std::countr_zero(left);
    const Site site{&warp, i.line, lane};
    uint64_t address = lane_address(warp, i, address_slot, lane, i.offset);
    space = space_of(i, address);
    addresses[lane] = address;
    const std::byte* from = resolve(warp, space, address, bytes, site, false);
    if (from != refused_) check_load(warp, i, space, address, bytes, site);
    for (uint32_t k = 0; k < i.vector; ++k) {
      const uint64_t value = extend(read_element(from + k * i.width, i.width), i);
      if (i.is_wide) wide_lanes(warp, operands[k])[lane] = value;
      else lanes(warp, operands[k])[lane] = static_cast<uint32_t>(value);
    }
    if (i.order != Order::weak && races() && space == PtxSpace::global)
      synchronise(warp, address, i.order, i.scope, true, false);
    if (context_.options.profile && space == PtxSpace::global) count_sectors(address, bytes);
  }
  if (context_.options.profile && space == PtxSpace::shared) count_bank_conflicts(addresses, mask, bytes);
}

void Cohort::store(Warp& warp, const Instruction& i, uint32_t mask) {
  const uint32_t* operands = warp.grid->program->operands(i);
  const uint32_t bytes = uint32_t{i.width} * i.vector;
  std::unique_lock lock(context_.sync_mutex, std::defer_lock);
  if (i.order != Order::weak && context_.is_parallel) lock.lock();
  uint64_t addresses[kWarpLanes];
  PtxSpace space = i.space;
  ++events_;
  for (uint32_t left = mask; left != 0; left &= left - 1) {
    const int lane = std::countr_zero(left);
    const Site site{&warp, i.line, lane};
    uint64_t address = lane_address(warp, i, operands[0], lane, i.offset);
    space = space_of(i, address);
    addresses[lane] = address;
    std::byte* to = resolve(warp, space, address, bytes, site, true);
    if (to == refused_) continue;
    check_store(warp, i, space, address, bytes, site);
    for (uint32_t k = 0; k < i.vector; ++k) {
      const uint64_t value = i.is_wide ? wide_lanes(warp, operands[1 + k])[lane] : lanes(warp, operands[1 + k])[lane];
      std::memcpy(to + k * i.width, &value, i.width);
    }
    if (races() && space == PtxSpace::global && (i.order != Order::weak || warp.last_region->has_strong))
      synchronise(warp, address, i.order, i.scope, false, true);
    if (context_.options.profile && space == PtxSpace::global) count_sectors(address, bytes);
  }
  if (context_.options.profile && space == PtxSpace::shared) count_bank_conflicts(addresses, mask, bytes);
}

void Cohort::atomic(Warp& warp, const Instruction& i, uint32_t mask) {
  const uint32_t* operands = warp.grid->program->operands(i);
  const uint32_t address_at = i.num_destinations, bytes = uint32_t{i.width} * i.vector;
  std::unique_lock lock(context_.sync_mutex, std::defer_lock);
  if (context_.is_parallel) lock.lock();
  has_spun_ |= i.atomic == AtomicOp::cas || i.atomic == AtomicOp::exch;
  ++events_;
  const auto read_lane = [&](uint32_t slot, int lane) -> uint64_t {
    return i.is_wide ? wide_lanes(warp, slot)[lane] : lanes(warp, slot)[lane];
  };
  bool has_changed = false;
  for (uint32_t left = mask; left != 0; left &= left - 1) {
    const int lane = std::countr_zero(left);
    const Site site{&warp, i.line, lane};
    uint64_t address = lane_address(warp, i, operands[address_at], lane, i.offset);
    const PtxSpace space = space_of(i, address);
    std::byte* at = resolve(warp, space, address, bytes, site, true);
    if (at == refused_) continue;
    if (space == PtxSpace::global && checks_initialised_) note_poison_read(warp, address, bytes, site);
    check_store(warp, i, space, address, bytes, site);
    for (uint32_t k = 0; k < i.vector; ++k) {
      const uint64_t old = read_element(at + k * i.width, i.width);
      const uint64_t first = read_lane(operands[address_at + 1 + k], lane);
      const bool is_cas = i.atomic == AtomicOp::cas;
      const uint64_t value = is_cas ? read_lane(operands[address_at + 2], lane) : first;
      const uint64_t low = i.width == 8 ? ~uint64_t{0} : (uint64_t{1} << (8 * i.width)) - 1;
      const uint64_t result = apply_atomic(i, old, value & low, first & low);
      has_changed |= result != old;
      std::memcpy(at + k * i.width, &result, i.width);
      if (i.num_destinations == 0) continue;
      if (i.is_wide) wide_lanes(warp, operands[k])[lane] = old;
      else lanes(warp, operands[k])[lane] = static_cast<uint32_t>(old);
    }
    if (races() && space == PtxSpace::global) synchronise(warp, address, i.order, i.scope, true, true);
    if (context_.options.profile && space == PtxSpace::global) count_sectors(address, bytes);
  }
  if (!has_changed) --events_;  // a failed compare-and-swap is waiting, not progress
}

void Cohort::count_sectors(uint64_t address, uint32_t bytes) {
  // lanes next to each other share sectors: a sector counts when it differs from the one before
  static thread_local uint64_t last = ~uint64_t{0};
  counters_.global_bytes += bytes;
  for (uint64_t sector = address / 32; sector <= (address + bytes - 1) / 32; ++sector) {
    counters_.global_sectors += sector != last;
    last = sector;
  }
}

/// 32 banks of 4 bytes. Accesses of 8 and 16 bytes go in 2 and 4 parts of the warp, each a wavefront of its own.
void Cohort::count_bank_conflicts(const uint64_t* addresses, uint32_t mask, uint32_t bytes) {
  const int lanes_per_part = bytes <= 4 ? 32 : bytes == 8 ? 16 : 8;
  for (int first = 0; first < kWarpLanes; first += lanes_per_part) {
    std::vector<uint64_t> words;
    for (int lane = first; lane < first + lanes_per_part; ++lane)
      if (mask >> lane & 1)
        for (uint64_t w = addresses[lane] / 4; w <= (addresses[lane] + bytes - 1) / 4; ++w) words.push_back(w);
    if (words.empty()) continue;
    std::sort(words.begin(), words.end());
    words.erase(std::unique(words.begin(), words.end()), words.end());
    uint32_t per_bank[32] = {}, most = 0;
    for (const uint64_t w : words) most = std::max(most, ++per_bank[w % 32]);
    ++counters_.shared_accesses;
    counters_.bank_conflicts += most - 1;
  }
}

}  // namespace seqtile::sim
