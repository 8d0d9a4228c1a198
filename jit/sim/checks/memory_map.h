// jit/sim/checks/memory_map.h -- global memory as named regions with owners, poison, access history and last writers.
// SPDX-License-Identifier: Apache-2.0
//
// The history of 16 bytes is four cells. A cell is one access: thread, time, bytes and kind. A new access that
// conflicts with a cell and is not ordered after it is a race. When all cells are in use, one is replaced: the machine
// may then miss a race but never invents one.
#pragma once
#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "jit/sim/decode/program.h"

namespace seqtile::sim {

struct HistoryCell {
  uint32_t cohort = 0;  ///< 0: unused
  uint32_t time = 0;
  uint16_t thread = 0;
  uint16_t bytes = 0;  ///< mask
  uint16_t line = 0;
  uint8_t scope = 0;
  bool is_write : 1 = false, is_strong : 1 = false;
};
struct HistoryChunk {
  HistoryCell cells[4];
};

struct LastWriter {
  int line = 0, cta = 0, warp = 0, lane = 0;
};

/// An access of one lane of a kernel to watched memory.
struct WatchedAccess {
  int device;         ///< the kernel's device
  int cta, num_ctas;  ///< the CTA's number in the grid, and the number of CTAs
  uint64_t offset;    ///< bytes from the begin of the memory
  bool is_write;
  Order order;
  Scope scope;
  uint64_t value;  ///< loaded or stored; the first element of a vector
};
using Watcher = std::function<void(const WatchedAccess&)>;

struct Region {
  std::string name;
  std::byte* begin = nullptr;
  uint64_t bytes = 0;
  int device = 0;
  bool is_peer_visible = false, is_constant = false;
  std::unique_ptr<uint8_t[]> poisoned;    ///< one byte a byte, null: nothing is poisoned
  std::unique_ptr<LastWriter[]> writers;  ///< one per 4 bytes, null: not recorded
  Watcher watcher;                        ///< null: nobody watches
  struct Free {
    void operator()(void* p) const;
  };
  std::unique_ptr<HistoryChunk[], Free> history;  ///< untouched pages cost nothing
  std::atomic<bool> has_strong{false};

  uint64_t address() const { return reinterpret_cast<uint64_t>(begin); }
  uint64_t end() const { return address() + bytes; }
  /// Right also for addresses so high that the end of the access wraps around.
  bool contains(uint64_t from, uint64_t count) const {
    const uint64_t offset = from - address();
    return offset < bytes && count <= bytes - offset;
  }
};

class MemoryMap {
 public:
  /// Errors: invalid_argument where the bytes overlap another region.
  Region& add(std::string name, void* begin, uint64_t bytes, int device, bool is_peer_visible);
  void remove(const void* begin);
  /// The region that holds `address`, or null.
  Region* find(uint64_t address) const;
  /// "C + 4096 (4096 bytes past the end of 131072)", "0x12 (in no buffer)".
  std::string describe(uint64_t address) const;
  void ensure_history(Region& region, bool races, bool writers);
  const std::vector<std::unique_ptr<Region>>& regions() const { return regions_; }

 private:
  std::vector<std::unique_ptr<Region>> regions_;  // by address
};

}  // namespace seqtile::sim
