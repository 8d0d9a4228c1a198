// jit/fabric/transport/cuda_fabric.cpp -- ranks that are GPUs of one machine: peer access, or memory opened across
// processes.
// SPDX-License-Identifier: Apache-2.0
//
// The hosts meet in a fabric of their own. Ranks that are threads of one process give each other addresses. Ranks that
// are processes give each other handles, which each rank opens for its GPU. A block may be freed when no other process
// has it open any more: ranks announce closed blocks in the next collective allocation, and once all ranks have
// announced a block, it is freed. Blocks that remain at the end go with the process.
#include "jit/fabric/transport/cuda_memory_link.h"

#include "seqtile/fabric.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <vector>

#include <fmt/format.h>
#include <unistd.h>

#include "jit/fabric/core/agreement.h"
#include "jit/fabric/core/rendezvous.h"
#include "jit/fabric/transport/node_fabric.h"
#include "jit/runtime/cuda/cuda_device.h"
#include "jit/runtime/cuda/peer_memory.h"
#include "seqtile/compiler.h"
#include "seqtile/error.h"

namespace seqtile {
namespace {

using cuda::CUcontext, cuda::CUipcMemHandle;
using SharedContext = std::shared_ptr<const cuda::Context>;
using SharedBlock = std::shared_ptr<cuda::PeerBlock>;

/// Where `all` texts hold a value each.
template <class T>
std::vector<T> values_of(const std::vector<std::string>& all) {
  std::vector<T> values(all.size());
  for (size_t i = 0; i < all.size(); ++i) std::memcpy(&values[i], all[i].data(), sizeof(T));
  return values;
}

template <class T>
std::string_view bytes_of(const T& value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}

/// Memory of ranks in one process. It holds the blocks of all ranks, as peers may still store there when a rank has
/// gone.
class PeerMemory final : public SymmetricMemory {
 public:
  PeerMemory(std::vector<SharedBlock> blocks, size_t bytes)
      : SymmetricMemory(addresses_of(blocks), bytes), blocks_(std::move(blocks)) {}

 private:
  static std::vector<uint64_t> addresses_of(const std::vector<SharedBlock>& blocks) {
    std::vector<uint64_t> addresses;
    for (const SharedBlock& block : blocks) addresses.push_back(block->address());
    return addresses;
  }
  std::vector<SharedBlock> blocks_;
};

/// The blocks that a process has given to others, by the number of their allocation.
class SharedBlocks {
 public:
  ~SharedBlocks() {
    for (auto& [number, block] : blocks_) block->abandon();
  }
  void add(uint64_t number, SharedBlock block) {
    const std::lock_guard lock(mutex_);
    blocks_.emplace(number, std::move(block));
  }
  /// This process has let the allocation go, and closed what is its peers'.
  void note_closed(uint64_t number) {
    const std::lock_guard lock(mutex_);
    closed_.insert(number);
  }
  std::set<uint64_t> closed() {
    const std::lock_guard lock(mutex_);
    return closed_;
  }
  void free(uint64_t number) {
    const std::lock_guard lock(mutex_);
    blocks_.erase(number);
    closed_.erase(number);
  }

 private:
  std::mutex mutex_;
  std::map<uint64_t, SharedBlock> blocks_;
  std::set<uint64_t> closed_;
};

/// Memory of ranks that are processes.
class OpenedMemory final : public SymmetricMemory {
 public:
  OpenedMemory(std::vector<uint64_t> addresses, size_t bytes, std::vector<cuda::OpenedBlock> peers,
               std::shared_ptr<SharedBlocks> shared, uint64_t number)
      : SymmetricMemory(std::move(addresses), bytes),
        peers_(std::move(peers)),
        shared_(std::move(shared)),
        number_(number) {}
  ~OpenedMemory() override {
    peers_.clear();
    shared_->note_closed(number_);
  }

 private:
  std::vector<cuda::OpenedBlock> peers_;
  std::shared_ptr<SharedBlocks> shared_;
  uint64_t number_;
};

class CudaFabric final : public Fabric {
 public:
  CudaFabric(const std::shared_ptr<const cuda::Driver>& driver, std::unique_ptr<Fabric> host_fabric, int gpu)
      : host_fabric_(std::move(host_fabric)) {
    fabric::agree(*host_fabric_, kWhat, {}, fabric::problem_in([&] { open(driver, gpu); }));
    fabric::agree(*host_fabric_, kWhat, {{"kind of GPU", kind_}});
    check_processes();
    const std::string own = cuda::bus_id(*context_);
    const std::vector<std::string> buses = all_gather(own);
    fabric::agree(*host_fabric_, kWhat, {}, fabric::problem_in([&] { check_peers(buses); }));
    if (is_one_process_) reach_peers();
  }

  int rank() const override { return host_fabric_->rank(); }
  int world_size() const override { return host_fabric_->world_size(); }
  std::string kind() const override { return kind_; }
  Device& device() override { return *device_; }
  void set_timeout(std::chrono::nanoseconds timeout) override { host_fabric_->set_timeout(timeout); }
  std::vector<std::string> all_gather(std::string_view mine) override { return host_fabric_->all_gather(mine); }

  std::unique_ptr<SymmetricMemory> allocate(size_t bytes) override {
    SharedBlock own;
    fabric::agree(*host_fabric_, "shared memory", {{"bytes", std::to_string(bytes)}},
                  fabric::problem_in([&] { own = std::make_shared<cuda::PeerBlock>(context_, bytes); }));
    return is_one_process_ ? share_in_process(own, bytes) : share_with_processes(own, bytes);
  }

 private:
  static constexpr const char* kWhat = "a fabric of GPUs";

  void open(const std::shared_ptr<const cuda::Driver>& driver, int gpu) {
    const int count = cuda::num_gpus(*driver);
    if (gpu < 0 || gpu >= count)
      throw Error(ErrorCode::driver,
                  fmt::format("there is no cuda:{} for it, the driver shows {} GPUs; use fewer ranks, "
                              "or look at CUDA_VISIBLE_DEVICES",
                              gpu, count));
    GpuFacts facts = cuda::describe_gpu(*driver, gpu);
    Target target = assembled(gpu_target(facts), cuda::cubin_arch_of(facts));
    kind_ = "cuda:" + target.name;
    context_ = std::make_shared<const cuda::Context>(driver, gpu);
    device_ = cuda::make_cuda_device(driver, gpu, std::move(facts), std::move(target));
  }

  /// All ranks are one process, or each is one. Errors, on all ranks alike: unsupported.
  void check_processes() {
    const std::vector<pid_t> pids = values_of<pid_t>(all_gather(bytes_of(getpid())));
    const size_t distinct = std::set<pid_t>(pids.begin(), pids.end()).size();
    is_one_process_ = distinct == 1;
    if (distinct > 1 && distinct < pids.size())
      throw Error(ErrorCode::unsupported,
                  fmt::format("{}: {} ranks in {} processes; run all in one, or each in its own", kWhat, pids.size(),
                              distinct));
  }

  void check_peers(const std::vector<std::string>& buses) const {
    for (int peer = 0; peer < world_size(); ++peer) {
      if (peer == rank()) continue;
      const std::string& bus = buses[static_cast<size_t>(peer)];
      if (bus == buses[static_cast<size_t>(rank())])
        throw Error(ErrorCode::invalid_argument,
                    fmt::format("ranks {} and {} are to run on one GPU, {}; give each its own", std::min(peer, rank()),
                                std::max(peer, rank()), bus));
      cuda::check_reaches(*context_, bus);
    }
  }

  void reach_peers() {
    const std::vector<CUcontext> contexts = values_of<CUcontext>(all_gather(bytes_of(context_->handle())));
    fabric::agree(*host_fabric_, kWhat, {}, fabric::problem_in([&] {
      for (int peer = 0; peer < world_size(); ++peer)
        if (peer != rank()) cuda::enable_peer_access(*context_, contexts[static_cast<size_t>(peer)]);
    }));
  }

  std::unique_ptr<SymmetricMemory> share_in_process(const SharedBlock& own, size_t bytes) {
    std::vector<SharedBlock> blocks;
    for (const SharedBlock* block : values_of<const SharedBlock*>(all_gather(bytes_of(&own)))) blocks.push_back(*block);
    all_gather("");  // `own` is there until all have it
    return std::make_unique<PeerMemory>(std::move(blocks), bytes);
  }

  std::unique_ptr<SymmetricMemory> share_with_processes(const SharedBlock& own, size_t bytes) {
    const uint64_t number = num_allocations_++;
    shared_->add(number, own);
    free_what_all_have_closed();
    std::vector<cuda::OpenedBlock> peers;
    std::vector<uint64_t> addresses;
    CUipcMemHandle handle;
    const auto exported = fabric::problem_in([&] { handle = own->handle(); });
    fabric::agree(*host_fabric_, "shared memory", {}, exported);
    const std::vector<CUipcMemHandle> handles = values_of<CUipcMemHandle>(all_gather(bytes_of(handle)));
    const auto opened = fabric::problem_in([&] {
      for (int peer = 0; peer < world_size(); ++peer) {
        if (peer != rank()) peers.emplace_back(context_, handles[static_cast<size_t>(peer)]);
        addresses.push_back(peer == rank() ? own->address() : peers.back().address());
      }
    });
    // From here on the block is one that others may have open, whatever becomes of the call.
    auto memory = std::make_unique<OpenedMemory>(std::move(addresses), bytes, std::move(peers), shared_, number);
    fabric::agree(*host_fabric_, "shared memory", {}, opened);
    return memory;
  }

  void free_what_all_have_closed() {
    const std::set<uint64_t> mine = shared_->closed();
    std::map<uint64_t, int> ranks;
    const std::vector<uint64_t> numbers(mine.begin(), mine.end());
    for (const std::string& text :
         all_gather({reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(uint64_t)}))
      for (size_t at = 0; at < text.size(); at += sizeof(uint64_t)) {
        uint64_t number = 0;
        std::memcpy(&number, text.data() + at, sizeof number);
        if (++ranks[number] == world_size()) shared_->free(number);
      }
  }

  std::unique_ptr<Fabric> host_fabric_;
  std::string kind_;
  bool is_one_process_ = false;
  SharedContext context_;
  std::unique_ptr<Device> device_;
  std::shared_ptr<SharedBlocks> shared_ = std::make_shared<SharedBlocks>();  ///< of ranks that are processes
  uint64_t num_allocations_ = 0;
};

}  // namespace

std::unique_ptr<Fabric> fabric::make_cuda_fabric(std::shared_ptr<const cuda::Driver> driver,
                                                 std::unique_ptr<Fabric> host_fabric, int gpu) {
  if (has_several_nodes(*host_fabric))
    throw Error(ErrorCode::unsupported,
                "a fabric of GPUs: its ranks are on several nodes; use GPUs of one machine, or ranks on CPUs");
  return std::make_unique<CudaFabric>(driver, std::move(host_fabric), gpu);
}

std::unique_ptr<Fabric> make_cuda_fabric(std::unique_ptr<Fabric> host_fabric, int gpu) {
  std::shared_ptr<const cuda::Driver> driver;
  fabric::agree(*host_fabric, "a fabric of GPUs", {}, fabric::problem_in([&] {
    driver = cuda::Driver::open();
    if (!driver)
      throw Error(ErrorCode::driver,
                  fmt::format("no NVIDIA driver found ({}); use ranks on the CPU", cuda::kDriverLibrary));
  }));
  return fabric::make_cuda_fabric(std::move(driver), std::move(host_fabric), gpu);
}

}  // namespace seqtile
