// jit/sim/exec/resolve.cpp -- from an address of the text to the host's bytes, with bounds and alignment.
// SPDX-License-Identifier: Apache-2.0
//
// A refused access is reported and goes to a spare buffer, so that one fault does not hide the next one.
#include <fmt/format.h>

#include <cstring>

#include "jit/ptx/address.h"
#include "jit/sim/exec/cohort.h"

namespace seqtile::sim {

namespace {

/// "shared + 16", or "shared - 4" where the offset is before the space.
std::string offset_text(std::string_view space, int64_t offset) {
  return fmt::format("{} {} {}", space, offset < 0 ? '-' : '+',
                     offset < 0 ? uint64_t{0} - static_cast<uint64_t>(offset) : static_cast<uint64_t>(offset));
}

}  // namespace

/// The space of a generic address; strips its window.
PtxSpace Cohort::space_of(const Instruction& i, uint64_t& address) const {
  if (i.space != PtxSpace::generic) {
    if (i.space == PtxSpace::shared) address &= 0xffffffff;
    // parameters of functions lie in frames
    if (i.space == PtxSpace::param && (address & kLocalWindow) != 0) return address &= ~kLocalWindow, PtxSpace::local;
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

std::byte* Cohort::global(Warp& warp, uint64_t address, uint32_t bytes, uint32_t align, const Site& site,
                          bool is_write) {
  Region* region = warp.last_region;
  if (region == nullptr || !region->contains(address, bytes)) {
    region = context_.memory.find(address);
    if (region == nullptr || !region->contains(address, bytes))
      return refuse(ReportKind::out_of_bounds, site,
                    fmt::format("global access of {} bytes at {}", bytes, context_.memory.describe(address)));
    warp.last_region = region;
  }
  if (address & (align - 1))
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

std::byte* Cohort::shared(Cta& cta, uint32_t address, uint32_t bytes, uint32_t align, const Site& site) {
  const uint32_t offset = address - kSharedBase;
  if (offset < cta.shared.size() && uint64_t{offset} + bytes <= cta.shared.size() && (address & (align - 1)) == 0)
    return cta.shared.data() + offset;
  const auto shown = static_cast<int32_t>(offset);
  if ((address & (align - 1)) != 0)
    return refuse(ReportKind::misaligned, site,
                  fmt::format("shared access of {} bytes at {}, multiples of {} are needed", bytes,
                              offset_text("shared", shown), align));
  return refuse(ReportKind::out_of_bounds, site,
                fmt::format("shared access of {} bytes at {} (of {} bytes)", bytes, offset_text("shared", shown),
                            cta.shared.size()));
}

std::byte* Cohort::local(Warp& warp, uint64_t address, uint32_t bytes, const Site& site) {
  const auto size = static_cast<uint64_t>(warp.grid->program->local_bytes);
  const uint64_t offset = address - kLocalBase;
  if (offset >= size || bytes > size - offset)
    return refuse(ReportKind::out_of_bounds, site,
                  fmt::format("local access of {} bytes at {} (of {} bytes)", bytes,
                              offset_text("local", static_cast<int64_t>(offset)), size));
  if ((address & (bytes - 1)) != 0)
    return refuse(ReportKind::misaligned, site, fmt::format("local access of {} bytes at local + {}", bytes, offset));
  return warp.local.data() + static_cast<uint64_t>(site.lane) * size + offset;
}

std::byte* Cohort::param(Warp& warp, uint64_t address, uint32_t bytes, const Site& site, bool is_write) {
  const uint64_t offset = address - kParamWindow;
  const std::vector<std::byte>& params = warp.grid->params;
  if (is_write) return refuse(ReportKind::read_only, site, "store to a kernel parameter");
  if (offset >= params.size() || bytes > params.size() - offset)
    return refuse(ReportKind::out_of_bounds, site,
                  fmt::format("{} bytes at {} (of {} bytes)", bytes,
                              offset_text("parameters", static_cast<int64_t>(offset)), params.size()));
  return const_cast<std::byte*>(params.data()) + offset;
}

Cohort::Place Cohort::locate(Warp& warp, const Instruction& i, uint32_t slot, uint32_t bytes, const Site& site,
                             bool is_write) {
  Place place{i.space, lane_address(warp, i, slot, site.lane, i.offset)};
  place.space = space_of(i, place.address);
  if (place.space == PtxSpace::global) {
    place.at = global(warp, place.address, bytes, bytes, site, is_write);
  } else if (place.space == PtxSpace::shared) {
    auto narrow = static_cast<uint32_t>(place.address);
    place.cta = cta_of(cta_of(warp), narrow, site);
    place.address = narrow;
    place.at = shared(*place.cta, narrow, bytes, bytes, site);
  } else if (place.space == PtxSpace::local) {
    place.at = local(warp, place.address, bytes, site);
  } else {
    place.at = param(warp, place.address, bytes, site, is_write);
  }
  return place;
}

std::string Cohort::describe(const Place& place) const {
  if (place.space == PtxSpace::global) return context_.memory.describe(place.address);
  return fmt::format("{} + {}", place.space == PtxSpace::shared ? "shared" : "local",
                     place.address - (place.space == PtxSpace::shared ? kSharedBase : kLocalBase));
}

void Cohort::note_poison_read(Warp& warp, uint64_t address, uint32_t bytes, const Site& site) {
  const Region* region = warp.last_region;
  if (region == nullptr || region->poisoned == nullptr) return;
  const uint64_t offset = address - region->address();
  if (!region->contains(address, bytes)) return;
  for (uint64_t b = offset; b < offset + bytes; ++b)
    if (region->poisoned[b] != 0)
      return report(ReportKind::uninitialised_memory, site,
                    fmt::format("global read at {}", context_.memory.describe(address)));
}

void Cohort::note_write(Warp& warp, uint64_t address, uint32_t bytes, const Site& site) {
  Region* region = warp.last_region;
  if (region == nullptr || (region->poisoned == nullptr && region->writers == nullptr)) return;
  const uint64_t offset = address - region->address();
  if (!region->contains(address, bytes)) return;
  if (region->poisoned != nullptr) std::memset(&region->poisoned[offset], 0, bytes);
  if (region->writers == nullptr) return;
  for (uint64_t w = offset / 4; w <= (offset + bytes - 1) / 4; ++w)
    region->writers[w] = {site.line, cta_of(warp).linear, warp.index, site.lane};
}

}  // namespace seqtile::sim
