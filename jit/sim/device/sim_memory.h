// jit/sim/device/sim_memory.h -- the memory of a simulated GPU: allocations of the host that the machine knows by name.
// SPDX-License-Identifier: Apache-2.0
//
// Fresh memory is poison until something is copied, filled or written there: a kernel that reads it is reported. Copies
// and fills beyond an allocation are refused. Thread-safe together with all other users of the world's mutex.
#pragma once
#include <functional>
#include <map>
#include <string>

#include "jit/sim/device/lone_memory.h"
#include "jit/sim/device/sim_streams.h"
#include "jit/sim/device/sim_world.h"
#include "seqtile/device.h"

namespace seqtile::sim {

class SimMemory final : public DeviceMemory {
 public:
  SimMemory(SimWorld& world, int device, SimStreams& streams) : world_(world), device_(device), streams_(streams) {}
  /// Errors: invalid_argument where no allocation begins at `pointer`.
  void name(const void* pointer, std::string name);

  void* allocate(size_t bytes) override { return allocate(bytes, false); }
  /// `is_for_peers`: kernels of the world's other devices reach the memory too.
  void* allocate(size_t bytes, bool is_for_peers);
  void free(void* pointer) noexcept override;
  void copy(void* to, const void* from, size_t bytes, Stream stream) override;
  void fill(void* pointer, uint8_t byte, size_t bytes, Stream stream) override;
  bool is_host() const override { return false; }

 private:
  void check(const void* pointer, size_t bytes, const char* what);
  /// Does `work` in the order of the stream, and of the device's launches.
  void do_in_order(Stream stream, std::function<void()> work);

  SimWorld& world_;
  const int device_;
  SimStreams& streams_;
  std::map<const std::byte*, LoneMemory> allocations_;
  size_t used_ = 0;
  int num_made_ = 0;
};

}  // namespace seqtile::sim
