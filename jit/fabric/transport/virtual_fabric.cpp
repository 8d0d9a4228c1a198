// jit/fabric/transport/virtual_fabric.cpp -- ranks that share one GPU.
// SPDX-License-Identifier: Apache-2.0
#include "jit/fabric/core/agreement.h"
#include "jit/fabric/core/rendezvous.h"
#include "jit/fabric/core/virtual_device.h"
#include "seqtile/fabric.h"

namespace seqtile {
namespace {

using SharedBuffer = std::shared_ptr<DeviceBuffer>;

/// The GPU and the place where the hosts meet; lives as long as any memory or rank of it.
struct VirtualRanks {
  VirtualRanks(std::shared_ptr<Device> device, int world_size, std::chrono::nanoseconds timeout)
      : rendezvous(world_size), gpu(std::make_shared<fabric::SharedGpu>(std::move(device), world_size, timeout)) {}
  fabric::Rendezvous rendezvous;
  std::shared_ptr<fabric::SharedGpu> gpu;
};

/// Holds the buffers of all ranks: peers may still store there when a rank has gone.
class VirtualMemory final : public SymmetricMemory {
 public:
  VirtualMemory(std::shared_ptr<VirtualRanks> ranks, std::vector<SharedBuffer> buffers, size_t bytes)
      : SymmetricMemory(addresses_of(buffers), bytes), ranks_(std::move(ranks)), buffers_(std::move(buffers)) {}

 private:
  static std::vector<uint64_t> addresses_of(const std::vector<SharedBuffer>& buffers) {
    std::vector<uint64_t> addresses;
    for (const SharedBuffer& buffer : buffers) addresses.push_back(reinterpret_cast<uint64_t>(buffer->data()));
    return addresses;
  }

  std::shared_ptr<VirtualRanks> ranks_;
  std::vector<SharedBuffer> buffers_;
};

class VirtualFabric final : public Fabric {
 public:
  VirtualFabric(int rank, std::shared_ptr<VirtualRanks> ranks)
      : rank_(rank), ranks_(std::move(ranks)), device_(fabric::make_virtual_device(ranks_->gpu, rank)) {}
  ~VirtualFabric() override {
    ranks_->rendezvous.leave();
    ranks_->gpu->leave();
  }

  int rank() const override { return rank_; }
  int world_size() const override { return ranks_->gpu->world_size(); }
  std::string kind() const override { return "virtual:" + device_->target().name; }
  Device& device() override { return *device_; }
  std::vector<std::string> all_gather(std::string_view mine) override {
    return ranks_->rendezvous.exchange(rank_, mine, timeout());
  }

  std::unique_ptr<SymmetricMemory> allocate(size_t bytes) override {
    SharedBuffer own;
    fabric::agree(*this, "shared memory", {{"bytes", std::to_string(bytes)}}, fabric::problem_in([&] {
      own = std::make_shared<DeviceBuffer>(device_->memory(), bytes);
      device_->memory().fill(own->data(), 0, bytes);
      device_->streams().synchronize({});
    }));
    std::vector<SharedBuffer> buffers;
    for (const uint64_t address : fabric::exchange_addresses(*this, &own))
      buffers.push_back(*reinterpret_cast<const SharedBuffer*>(address));
    all_gather("");  // `own` is there until all have it
    return std::make_unique<VirtualMemory>(ranks_, std::move(buffers), bytes);
  }

 private:
  const int rank_;
  const std::shared_ptr<VirtualRanks> ranks_;
  const std::unique_ptr<Device> device_;
};

}  // namespace

std::vector<std::unique_ptr<Fabric>> make_virtual_fabric(std::shared_ptr<Device> gpu, int world_size,
                                                         std::chrono::nanoseconds timeout) {
  fabric::check_world_size(world_size);
  const auto ranks = std::make_shared<VirtualRanks>(std::move(gpu), world_size, timeout);
  std::vector<std::unique_ptr<Fabric>> fabrics;
  for (int rank = 0; rank < world_size; ++rank) fabrics.push_back(std::make_unique<VirtualFabric>(rank, ranks));
  return fabrics;
}

}  // namespace seqtile
