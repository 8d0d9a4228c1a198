// jit/sim/checks/memory_map.cpp -- see the header.
// SPDX-License-Identifier: Apache-2.0
#include "jit/sim/checks/memory_map.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

#include "seqtile/error.h"

namespace seqtile::sim {

void Region::Free::operator()(void* p) const { std::free(p); }

Region& MemoryMap::add(std::string name, void* begin, uint64_t bytes, int device, bool is_peer_visible) {
  auto region = std::make_unique<Region>();
  region->name = std::move(name);
  region->begin = static_cast<std::byte*>(begin);
  region->bytes = bytes;
  region->device = device;
  region->is_peer_visible = is_peer_visible;
  const auto place = std::lower_bound(regions_.begin(), regions_.end(), region->address(),
                                      [](const auto& r, uint64_t address) { return r->address() < address; });
  const bool overlaps = (place != regions_.end() && (*place)->address() < region->end()) ||
                        (place != regions_.begin() && place[-1]->end() > region->address());
  if (overlaps && bytes > 0)
    throw Error(ErrorCode::invalid_argument, fmt::format("memory region '{}' overlaps another one", region->name));
  return **regions_.insert(place, std::move(region));
}

void MemoryMap::remove(const void* begin) {
  std::erase_if(regions_, [&](const auto& region) { return region->begin == begin; });
}

Region* MemoryMap::find(uint64_t address) const {
  auto place = std::upper_bound(regions_.begin(), regions_.end(), address,
                                [](uint64_t wanted, const auto& r) { return wanted < r->address(); });
  if (place == regions_.begin()) return nullptr;
  Region* region = place[-1].get();
  return address < region->end() ? region : nullptr;
}

std::string MemoryMap::describe(uint64_t address) const {
  if (const Region* region = find(address)) return fmt::format("{} + {}", region->name, address - region->address());
  // the region whose end or start is nearest, if it is near at all
  const Region* nearest = nullptr;
  uint64_t distance = uint64_t{1} << 30;
  for (const auto& region : regions_) {
    const uint64_t away = address < region->address() ? region->address() - address : address - region->end() + 1;
    if (away < distance) distance = away, nearest = region.get();
  }
  if (nearest == nullptr) return fmt::format("0x{:x} (in no buffer)", address);
  if (address < nearest->address()) return fmt::format("{} - {}", nearest->name, nearest->address() - address);
  return fmt::format("{} + {} (of {} bytes)", nearest->name, address - nearest->address(), nearest->bytes);
}

void MemoryMap::ensure_history(Region& region, bool races, bool writers) {
  if (races && region.history == nullptr) {
    void* cells = std::calloc(region.bytes / 16 + 2, sizeof(HistoryChunk));
    if (cells == nullptr)
      throw Error(ErrorCode::out_of_resources, "no memory for the access history of " + region.name);
    region.history.reset(static_cast<HistoryChunk*>(cells));
  }
  if (writers && region.writers == nullptr) region.writers = std::make_unique<LastWriter[]>(region.bytes / 4 + 1);
}

}  // namespace seqtile::sim
