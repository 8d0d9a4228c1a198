// jit/fabric/core/virtual_device.h -- a GPU that several ranks share, and the device that each rank sees.
// SPDX-License-Identifier: Apache-2.0
//
// Memory, copies and kernels of one rank alone go to the GPU as they are. A kernel that ranks share is launched once
// for all ranks: each rank's thread brings its arguments and waits; the last thread launches, with the arguments of all
// ranks. On every rank's stream the launch comes after the rank's earlier work and before its later work. The GPU
// itself does not know of its ranks.
#pragma once
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "jit/device/gpu_launch.h"
#include "seqtile/device.h"
#include "seqtile/error.h"

namespace seqtile::fabric {

class SharedGpu {
 public:
  SharedGpu(std::shared_ptr<Device> gpu, int world_size, std::chrono::nanoseconds timeout);

  const std::shared_ptr<Device>& gpu() const { return gpu_; }
  int world_size() const { return static_cast<int>(ranks_.size()); }
  /// Ranks that load the same binary get one object. Errors: as Device::load; invalid_argument where the kernel is
  /// compiled for another number of ranks.
  std::shared_ptr<const LoadedKernel> load(KernelBinary binary);
  /// Returns when the launch of all ranks is handed off. Errors: as make_virtual_fabric() and Device::launch.
  void launch(int rank, const LoadedKernel& kernel, const RankArguments& arguments, Stream stream);
  /// The rank launches no more.
  void leave();

 private:
  using Clock = std::chrono::steady_clock;
  struct Rank {
    const LoadedKernel* kernel = nullptr;  ///< null: the rank has not come
    RankArguments arguments;
    Stream stream;
    std::optional<Error> error;  ///< error of the launch that the rank waits for
    std::unique_ptr<Event> event;
  };
  void launch_all();
  void hand_off();

  const std::shared_ptr<Device> gpu_;
  const std::chrono::nanoseconds timeout_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Rank> ranks_;
  std::vector<std::weak_ptr<const LoadedKernel>> kernels_;
  int num_here_ = 0, num_left_ = 0;
  uint64_t number_ = 0;  ///< how many launches there were so far
  Clock::time_point last_came_{};
};

/// The GPU as the device of one rank.
std::unique_ptr<Device> make_virtual_device(std::shared_ptr<SharedGpu> gpu, int rank);

}  // namespace seqtile::fabric
