// jit/fabric/transport/sim_fabric.cpp -- ranks that are simulated GPUs of one PTX machine.
// SPDX-License-Identifier: Apache-2.0
#include "jit/device/sim_devices.h"
#include "jit/fabric/core/agreement.h"
#include "jit/fabric/core/rendezvous.h"
#include "seqtile/fabric.h"

namespace seqtile {
namespace {

/// The GPUs of a world and the place where their hosts meet; lives as long as any memory or rank of it.
struct SimRanks {
  SimRanks(std::string_view target, int world_size)
      : rendezvous(world_size), devices(make_sim_devices(target, world_size)) {}
  fabric::Rendezvous rendezvous;
  std::vector<std::unique_ptr<PeerDevice>> devices;
};

class SimSymmetricMemory final : public SymmetricMemory {
 public:
  SimSymmetricMemory(std::shared_ptr<SimRanks> ranks, std::vector<uint64_t> addresses, size_t bytes)
      : SymmetricMemory(std::move(addresses), bytes), ranks_(std::move(ranks)) {}

 private:
  std::shared_ptr<SimRanks> ranks_;  ///< peers may still store there: it is freed with the GPUs
};

class SimFabric final : public Fabric {
 public:
  SimFabric(int rank, std::shared_ptr<SimRanks> ranks) : rank_(rank), ranks_(std::move(ranks)) {}
  ~SimFabric() override { ranks_->rendezvous.leave(); }

  int rank() const override { return rank_; }
  int world_size() const override { return static_cast<int>(ranks_->devices.size()); }
  std::string kind() const override { return "sim:" + own().target().name; }
  Device& device() override { return own(); }
  std::vector<std::string> all_gather(std::string_view mine) override {
    return ranks_->rendezvous.exchange(rank_, mine, timeout());
  }

  std::unique_ptr<SymmetricMemory> allocate(size_t bytes) override {
    void* data = nullptr;
    fabric::agree(*this, "shared memory", {{"bytes", std::to_string(bytes)}}, fabric::problem_in([&] {
      data = own().allocate_for_peers(bytes);
      own().memory().fill(data, 0, bytes);
      own().streams().synchronize({});
    }));
    return std::make_unique<SimSymmetricMemory>(ranks_, fabric::exchange_addresses(*this, data), bytes);
  }

 private:
  PeerDevice& own() const { return *ranks_->devices[static_cast<size_t>(rank_)]; }

  const int rank_;
  std::shared_ptr<SimRanks> ranks_;
};

}  // namespace

std::vector<std::unique_ptr<Fabric>> make_sim_fabric(std::string_view target, int world_size) {
  fabric::check_world_size(world_size);
  const auto ranks = std::make_shared<SimRanks>(target, world_size);
  std::vector<std::unique_ptr<Fabric>> fabrics;
  for (int rank = 0; rank < world_size; ++rank) fabrics.push_back(std::make_unique<SimFabric>(rank, ranks));
  return fabrics;
}

}  // namespace seqtile
