// jit/sim/sim_memory.h -- the memory of a simulated GPU: allocations of the host that the machine knows by name.
// SPDX-License-Identifier: Apache-2.0
//
// Fresh memory is poison until something is copied, filled or written there: a kernel that reads it is reported. Copies
// and fills beyond an allocation are refused. Thread-safe together with whoever else uses `mutex`.
#pragma once
#include <map>
#include <mutex>
#include <string>

#include "jit/device.h"
#include "jit/sim/machine.h"
#include "jit/sim/sim_streams.h"

namespace seqtile::sim {

class SimMemory final : public DeviceMemory {
 public:
  SimMemory(Machine& machine, std::mutex& mutex, SimStreams& streams)
      : machine_(machine), mutex_(mutex), streams_(streams) {}
  ~SimMemory() override;
  /// Errors: invalid_argument where no allocation begins at `pointer`.
  void name(const void* pointer, std::string name);

  void* allocate(size_t bytes) override;
  void free(void* pointer) noexcept override;
  void copy(void* to, const void* from, size_t bytes, Stream stream) override;
  void fill(void* pointer, uint8_t byte, size_t bytes, Stream stream) override;
  bool is_host() const override { return false; }

 private:
  void check(const void* pointer, size_t bytes, const char* what);

  Machine& machine_;
  std::mutex& mutex_;
  SimStreams& streams_;
  std::map<const std::byte*, size_t> allocations_;
  size_t used_ = 0;
  int num_made_ = 0;
};

}  // namespace seqtile::sim
