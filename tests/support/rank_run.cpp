// tests/support/rank_run.cpp -- see rank_run.h.
// SPDX-License-Identifier: Apache-2.0
#include "tests/support/rank_run.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <map>
#include <random>
#include <thread>

#include "jit/compiler.h"
#include "jit/sim/sim_device.h"

namespace seqtile::testing {
namespace {

/// Tensors of host memory where a device's kernels reach them; tensors with the same data stay one.
class DeviceTensors {
 public:
  explicit DeviceTensors(Device& device) : device_(device) {}

  Tensor place(const Tensor& tensor) {
    if (device_.memory().is_host()) return tensor;
    auto found = buffers_.find(tensor.data);
    if (found == buffers_.end()) {
      const size_t bytes = extent(tensor);
      found = buffers_.emplace(tensor.data, DeviceBuffer(device_.memory(), std::max<size_t>(bytes, 1))).first;
      device_.memory().copy(found->second.data(), tensor.data, bytes);
      placed_.push_back(tensor);
    }
    Tensor result = tensor;
    result.data = found->second.data();
    return result;
  }

  void take_back() {
    for (const Tensor& tensor : placed_)
      device_.memory().copy(tensor.data, buffers_.at(tensor.data).data(), extent(tensor));
    device_.streams().synchronize({});
  }

 private:
  static size_t extent(const Tensor& tensor) {
    int64_t elements = tensor.num_elements() > 0 ? 1 : 0;
    for (int d = 0; d < tensor.rank && elements > 0; ++d) elements += (tensor.sizes[d] - 1) * tensor.strides[d];
    return static_cast<size_t>(elements * dtype_bytes(tensor.dtype));
  }

  Device& device_;
  std::map<void*, DeviceBuffer> buffers_;
  std::vector<Tensor> placed_;
};

std::vector<uint64_t> slots_of(const std::vector<Tensor>& tensors) {
  std::vector<uint64_t> slots;
  for (const Tensor& tensor : tensors) {
    slots.push_back(reinterpret_cast<uintptr_t>(tensor.data));
    for (int d = 0; d < tensor.rank; ++d) slots.push_back(static_cast<uint64_t>(tensor.sizes[d]));
    for (int d = 0; d < tensor.rank; ++d) slots.push_back(static_cast<uint64_t>(tensor.strides[d]));
  }
  return slots;
}

/// Staging that no rank has written yet must not reach a result.
void poison_staging(Channel& channel) {
  const auto address = reinterpret_cast<void*>(channel.staging_address());
  const auto bytes = static_cast<size_t>(channel.staging_bytes());
  Device& device = channel.fabric().device();
  device.memory().fill(address, 0xff, bytes);
  device.streams().synchronize({});
  if (auto* simulated = dynamic_cast<sim::SimDevice*>(&device)) simulated->machine().poison(address, bytes);
}

class Rank {
 public:
  Rank(Fabric& fabric, const RankOptions& options) : fabric_(fabric), options_(options) {}

  void run(const KernelBinary& binary, const std::vector<RankCall>& calls) {
    Device& device = fabric_.device();
    if (auto* simulated = dynamic_cast<sim::SimDevice*>(&device)) simulated->options().seed = options_.seed;
    Channel channel(fabric_, options_.channel);
    poison_staging(channel);
    fabric_.all_gather("");
    const auto kernel = device.load(binary);
    DeviceTensors tensors(device);
    for (const RankCall& call : calls) {
      std::vector<Tensor> placed;
      for (const Tensor& tensor : call.tensors) placed.push_back(tensors.place(tensor));
      placed.push_back(channel.block());
      pause(device);
      device.launch(*kernel, call.grid, slots_of(placed));
    }
    tensors.take_back();
    epoch = channel.epoch();
    record = channel.abort_record();
    fabric_.all_gather("");  // peers may still store flags here
  }

  uint64_t epoch = 0;
  std::optional<AbortRecord> record;
  std::exception_ptr error;

 private:
  void pause(const Device& device) {
    if (!options_.seed || device.target().is_gpu()) return;
    const bool is_slow = fabric_.rank() == options_.slow_rank;
    std::this_thread::sleep_for(std::chrono::microseconds(random_() % (is_slow ? 3000 : 100)));
  }

  Fabric& fabric_;
  const RankOptions& options_;
  std::mt19937 random_{options_.seed + static_cast<uint32_t>(fabric_.rank()) * 7919};
};

}  // namespace

RankOutcome run_ranks(const ir::Function& function, const RankOptions& options,
                      const std::vector<std::vector<RankCall>>& calls) {
  const bool is_simulated = options.device.starts_with("sim:");
  const std::string target = is_simulated ? options.device.substr(4) : "";
  const KernelBinary binary = compile(function, is_simulated ? gpu_target(target) : host_target());
  const auto fabrics =
      is_simulated ? make_sim_fabric(target, options.world_size) : make_thread_fabric(options.world_size);
  std::vector<Rank> ranks;
  for (const auto& fabric : fabrics) ranks.emplace_back(*fabric, options);
  std::vector<std::thread> threads;
  for (size_t i = 0; i < ranks.size(); ++i)
    threads.emplace_back([&, i] {
      try {
        ranks[i].run(binary, calls[i]);
      } catch (...) {
        ranks[i].error = std::current_exception();
      }
    });
  for (std::thread& thread : threads) thread.join();
  RankOutcome outcome;
  for (const Rank& rank : ranks) {
    if (rank.error) std::rethrow_exception(rank.error);
    outcome.epochs.push_back(rank.epoch);
    outcome.records.push_back(rank.record);
  }
  return outcome;
}

}  // namespace seqtile::testing
