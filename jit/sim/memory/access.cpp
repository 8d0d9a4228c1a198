// jit/sim/memory/access.cpp -- loads, stores and atomics in every address space.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <bit>
#include <cstring>

#include "jit/sim/exec/cohort.h"
#include "jit/sim/memory/atomic_ops.h"

namespace seqtile::sim {
namespace {

template <class T>
uint64_t read_as(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof(T));
  return value;
}

// Copies of a known size are single moves; those of a variable one are calls.
uint64_t read_element(const std::byte* from, uint32_t width) {
  switch (width) {
    case 1: return read_as<uint8_t>(from);
    case 2: return read_as<uint16_t>(from);
    case 4: return read_as<uint32_t>(from);
    default: return read_as<uint64_t>(from);
  }
}

void write_element(std::byte* to, uint32_t width, uint64_t value) {
  switch (width) {
    case 1: std::memcpy(to, &value, 1); break;
    case 2: std::memcpy(to, &value, 2); break;
    case 4: std::memcpy(to, &value, 4); break;
    default: std::memcpy(to, &value, 8); break;
  }
}

bool is_signed_type(PtxType type) { return type == PtxType::s8 || type == PtxType::s16 || type == PtxType::s32; }

uint64_t extend(uint64_t value, const Instruction& i) {
  if (!is_signed_type(i.type)) return value;
  const int unused = 64 - 8 * i.width;
  const auto wide = static_cast<uint64_t>(static_cast<int64_t>(value << unused) >> unused);
  // a 16-bit register holds its value zero extended
  return i.is_wide ? wide : i.width == 2 ? wide & 0xffff : wide & 0xffffffff;
}

}  // namespace

/// Tells the checks of one lane's access; atomics are told as a read and as a write.
void Cohort::note_access(Warp& warp, const Instruction& i, const Place& place, uint32_t bytes, const Site& site,
                         bool is_write) {
  const bool is_strong = i.order != Order::weak;
  if (place.space == PtxSpace::shared && tracks_shared()) {
    const SharedAccess access{static_cast<uint32_t>(warp.id), warp.clock, site,
                              is_strong ? AccessKind::strong : AccessKind::plain, static_cast<uint8_t>(site.lane)};
    const auto address = static_cast<uint32_t>(place.address);
    if (is_write) shared_write(*place.cta, address, bytes, access);
    else shared_read(*place.cta, address, bytes, access);
  } else if (place.space == PtxSpace::global) {
    if (is_write) note_write(warp, place.address, bytes, site);
    else if (checks_initialised_) note_poison_read(warp, place.address, bytes, site);
    const bool is_half_of_atomic = i.op == Op::atomic && !is_write;
    if (races() && !is_half_of_atomic)
      global_access(warp, place.address, bytes, {is_write, is_strong, i.scope}, warp.clock, site);
  }
}

/// After the data has moved.
void Cohort::tell_watcher(const Warp& warp, const Instruction& i, const Place& place, bool is_write) const {
  if (place.space != PtxSpace::global || !warp.last_region->watcher) return;
  warp.last_region->watcher({warp.grid->device, cta_of(warp).linear, warp.grid->num_ctas(),
                             place.address - warp.last_region->address(), is_write, i.order, i.scope,
                             read_element(place.at, i.width)});
}

/// The releases that an access of this place learns of or adds to; null where the space has none.
std::vector<ReleasedMessage>* Cohort::messages_at(const Place& place) {
  if (!races()) return nullptr;
  if (place.space == PtxSpace::global) return &context_.released[place.address];
  if (place.space == PtxSpace::shared) return &place.cta->released[static_cast<uint32_t>(place.address)];
  return nullptr;
}

void Cohort::load(Warp& warp, const Instruction& i, uint32_t mask) {
  if (load_unwatched(warp, i, mask)) return;
  const uint32_t* operands = warp.grid->program->operands(i);
  const uint32_t bytes = uint32_t{i.width} * i.vector, address_slot = operands[i.vector];
  const bool is_strong = i.order != Order::weak;
  std::unique_lock lock(context_.sync_mutex, std::defer_lock);
  has_spun_ |= is_strong;
  if (is_strong && context_.is_parallel) lock.lock();
  uint64_t addresses[kWarpLanes];
  Place place{};
  for (uint32_t left = mask; left != 0; left &= left - 1) {
    const int lane = std::countr_zero(left);
    const Site site{&warp, i.line, lane};
    place = locate(warp, i, address_slot, bytes, site, false);
    addresses[lane] = place.address;
    if (place.at != refused_) note_access(warp, i, place, bytes, site, false);
    for (uint32_t k = 0; k < i.vector; ++k) {
      const uint64_t value = extend(read_element(place.at + k * i.width, i.width), i);
      if (i.is_wide) wide_lanes(warp, operands[k])[lane] = value;
      else lanes(warp, operands[k])[lane] = static_cast<uint32_t>(value);
    }
    if (place.at != refused_) tell_watcher(warp, i, place, false);
    if (is_strong)
      if (auto* messages = messages_at(place)) synchronise(warp, *messages, i.order, i.scope, true, false);
  }
  if (context_.options.profile) count_traffic(place.space, addresses, mask, bytes);
}

void Cohort::store(Warp& warp, const Instruction& i, uint32_t mask) {
  if (store_unwatched(warp, i, mask)) return;
  const uint32_t* operands = warp.grid->program->operands(i);
  const uint32_t bytes = uint32_t{i.width} * i.vector;
  const bool is_strong = i.order != Order::weak;
  std::unique_lock lock(context_.sync_mutex, std::defer_lock);
  if (is_strong && context_.is_parallel) lock.lock();
  uint64_t addresses[kWarpLanes], end = 0;
  bool may_overlap = false;
  Place place{};
  ++events_;
  for (uint32_t left = mask; left != 0; left &= left - 1) {
    const int lane = std::countr_zero(left);
    const Site site{&warp, i.line, lane};
    place = locate(warp, i, operands[0], bytes, site, true);
    addresses[lane] = place.address;
    may_overlap |= place.address < end;
    end = place.address + bytes;
    if (place.at == refused_) continue;
    const bool ends_a_chain = place.space == PtxSpace::global && races() && warp.last_region->has_strong;
    if (ends_a_chain && context_.is_parallel && !lock.owns_lock()) lock.lock();
    note_access(warp, i, place, bytes, site, true);
    for (uint32_t k = 0; k < i.vector; ++k)
      write_element(place.at + k * i.width, i.width, value_of(warp, i, 1 + k, lane));
    tell_watcher(warp, i, place, true);
    if (is_strong || ends_a_chain)
      if (auto* messages = messages_at(place)) synchronise(warp, *messages, i.order, i.scope, false, true);
  }
  if (may_overlap && !is_strong && checks_lanes() && place.space != PtxSpace::local) check_same_values(warp, i, mask);
  if (context_.options.profile) count_traffic(place.space, addresses, mask, bytes);
}

/// After a store each lane must find its own value; which of two lanes wins is not defined.
void Cohort::check_same_values(Warp& warp, const Instruction& i, uint32_t mask) {
  const uint32_t* operands = warp.grid->program->operands(i);
  const uint32_t bytes = uint32_t{i.width} * i.vector;
  for (uint32_t left = mask; left != 0; left &= left - 1) {
    const int lane = std::countr_zero(left);
    const Site site{&warp, i.line, lane};
    const Place place = locate(warp, i, operands[0], bytes, site, true);
    if (place.at == refused_) continue;
    for (uint32_t k = 0; k < i.vector; ++k) {
      const uint64_t low = i.width == 8 ? ~uint64_t{0} : (uint64_t{1} << (8 * i.width)) - 1;
      if (read_element(place.at + k * i.width, i.width) != (value_of(warp, i, 1 + k, lane) & low))
        return report(ReportKind::race, site, "lanes of one instruction write different values to " + describe(place));
    }
  }
}

void Cohort::atomic(Warp& warp, const Instruction& i, uint32_t mask) {
  const uint32_t* operands = warp.grid->program->operands(i);
  const uint32_t address_at = i.num_destinations, bytes = uint32_t{i.width} * i.vector;
  const uint64_t low = i.width == 8 ? ~uint64_t{0} : (uint64_t{1} << (8 * i.width)) - 1;
  std::unique_lock lock(context_.sync_mutex, std::defer_lock);
  if (context_.is_parallel) lock.lock();
  has_spun_ |= i.atomic == AtomicOp::cas || i.atomic == AtomicOp::exch;
  bool has_changed = false;
  for (uint32_t left = mask; left != 0; left &= left - 1) {
    const int lane = std::countr_zero(left);
    const Site site{&warp, i.line, lane};
    const Place place = locate(warp, i, operands[address_at], bytes, site, true);
    if (place.at == refused_) continue;
    note_access(warp, i, place, bytes, site, false);
    note_access(warp, i, place, bytes, site, true);
    for (uint32_t k = 0; k < i.vector; ++k) {
      const uint64_t old = read_element(place.at + k * i.width, i.width);
      const uint64_t first = value_of(warp, i, address_at + 1 + k, lane) & low;
      const uint64_t value = i.atomic == AtomicOp::cas ? value_of(warp, i, address_at + 2, lane) & low : first;
      const uint64_t result = apply_atomic(i.atomic, i.type, old, value, first);
      has_changed |= result != old;
      write_element(place.at + k * i.width, i.width, result);
      if (i.num_destinations == 0) continue;
      if (i.is_wide) wide_lanes(warp, operands[k])[lane] = old;
      else lanes(warp, operands[k])[lane] = static_cast<uint32_t>(old);
    }
    tell_watcher(warp, i, place, true);
    if (auto* messages = messages_at(place)) synchronise(warp, *messages, i.order, i.scope, true, true);
    if (context_.options.profile && place.space == PtxSpace::global) count_sectors(place.address, bytes);
  }
  if (has_changed) ++events_;  // a failed compare-and-swap is waiting, not progress
}

void Cohort::count_traffic(PtxSpace space, const uint64_t* addresses, uint32_t mask, uint32_t bytes) {
  if (space == PtxSpace::shared) return count_bank_conflicts(addresses, mask, bytes);
  if (space != PtxSpace::global) return;
  for (uint32_t left = mask; left != 0; left &= left - 1) count_sectors(addresses[std::countr_zero(left)], bytes);
}

void Cohort::count_sectors(uint64_t address, uint32_t bytes) {
  // lanes next to each other share sectors: a sector counts when it differs from the one before
  counters_.global_bytes += bytes;
  for (uint64_t sector = address / 32; sector <= (address + bytes - 1) / 32; ++sector) {
    counters_.global_sectors += sector != last_sector_;
    last_sector_ = sector;
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
