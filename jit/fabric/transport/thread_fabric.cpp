// jit/fabric/transport/thread_fabric.cpp -- ranks that are threads of one process.
// SPDX-License-Identifier: Apache-2.0
#include <cstring>

#include "jit/fabric/core/agreement.h"
#include "jit/fabric/core/rendezvous.h"
#include "jit/fabric/core/wait.h"
#include "seqtile/fabric.h"

namespace seqtile {
namespace {

using SharedBuffer = std::shared_ptr<DeviceBuffer>;

/// Holds the buffers of all ranks: peers may still store there, or read, when a rank has gone.
class HostMemory final : public SymmetricMemory {
 public:
  HostMemory(std::vector<SharedBuffer> buffers, size_t bytes)
      : SymmetricMemory(addresses_of(buffers), bytes), buffers_(std::move(buffers)) {}

 private:
  static std::vector<uint64_t> addresses_of(const std::vector<SharedBuffer>& buffers) {
    std::vector<uint64_t> addresses;
    for (const SharedBuffer& buffer : buffers) addresses.push_back(reinterpret_cast<uint64_t>(buffer->data()));
    return addresses;
  }

  std::vector<SharedBuffer> buffers_;
};

class ThreadFabric final : public Fabric {
 public:
  ThreadFabric(int rank, int world_size, int num_threads, std::shared_ptr<fabric::Rendezvous> rendezvous)
      : rank_(rank),
        world_size_(world_size),
        rendezvous_(std::move(rendezvous)),
        device_(make_cpu_device(num_threads)) {}
  ~ThreadFabric() override { rendezvous_->leave(); }

  int rank() const override { return rank_; }
  int world_size() const override { return world_size_; }
  std::string kind() const override { return "threads"; }
  Device& device() override { return *device_; }
  std::vector<std::string> all_gather(std::string_view mine) override {
    return rendezvous_->exchange(rank_, mine, timeout());
  }
  channel::WaitFunction wait_function() const override { return fabric::wait_for_flag; }

  std::unique_ptr<SymmetricMemory> allocate(size_t bytes) override {
    std::shared_ptr<DeviceBuffer> own;
    fabric::agree(*this, "shared memory", {{"bytes", std::to_string(bytes)}}, fabric::problem_in([&] {
      own = std::make_shared<DeviceBuffer>(device_->memory(), bytes);
      std::memset(own->data(), 0, bytes);
    }));
    std::vector<SharedBuffer> buffers;
    for (const uint64_t address : fabric::exchange_addresses(*this, &own))
      buffers.push_back(*reinterpret_cast<const SharedBuffer*>(address));
    all_gather("");  // `own` is there until all have it
    return std::make_unique<HostMemory>(std::move(buffers), bytes);
  }

 private:
  const int rank_, world_size_;
  std::shared_ptr<fabric::Rendezvous> rendezvous_;
  std::unique_ptr<Device> device_;
};

}  // namespace

std::vector<std::unique_ptr<Fabric>> make_thread_fabric(int world_size, int num_threads) {
  fabric::check_world_size(world_size);
  const auto rendezvous = std::make_shared<fabric::Rendezvous>(world_size);
  std::vector<std::unique_ptr<Fabric>> ranks;
  for (int rank = 0; rank < world_size; ++rank)
    ranks.push_back(std::make_unique<ThreadFabric>(rank, world_size, num_threads, rendezvous));
  return ranks;
}

}  // namespace seqtile
