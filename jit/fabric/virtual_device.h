// jit/fabric/virtual_device.h -- a GPU that several ranks share, and what each of them sees of it.
// SPDX-License-Identifier: Apache-2.0
//
// Memory, copies and kernels of one rank alone go to the GPU as they are. Kernels that ranks share are launched once
// for all: each rank's thread brings its arguments and waits; the last one launches. The launch comes behind all that
// the ranks have asked for on their streams before it, and before what they ask for next.
#pragma once
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "jit/device.h"
#include "jit/error.h"

namespace seqtile::fabric {

class SharedGpu {
 public:
  SharedGpu(std::shared_ptr<Device> gpu, int world_size, std::chrono::nanoseconds patience);

  Device& gpu() { return *gpu_; }
  int world_size() const { return static_cast<int>(ranks_.size()); }
  /// One object for all ranks that load the same. Errors: as Device::load; invalid_argument where the kernel is
  /// compiled for another number of ranks.
  std::shared_ptr<const LoadedKernel> load(KernelBinary binary);
  /// Returns when the launch of all ranks is handed off. Errors: as make_virtual_fabric() and Device::launch.
  void launch(int rank, const LoadedKernel& kernel, const RankArguments& arguments, Stream stream);
  /// The rank launches no more.
  void leave();

 private:
  using Clock = std::chrono::steady_clock;
  struct Rank {
    const LoadedKernel* kernel = nullptr;  ///< null: has not come
    RankArguments arguments;
    Stream stream;
    std::optional<Error> error;  ///< of the launch that it waits for
    std::unique_ptr<Event> event;
  };
  void launch_all();
  void hand_off();

  const std::shared_ptr<Device> gpu_;
  const std::chrono::nanoseconds patience_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Rank> ranks_;
  std::vector<std::weak_ptr<const LoadedKernel>> kernels_;
  int num_here_ = 0, num_left_ = 0;
  uint64_t number_ = 0;  ///< of launches so far
  Clock::time_point last_came_{};
};

/// The GPU as the device of one rank.
std::unique_ptr<Device> make_virtual_device(std::shared_ptr<SharedGpu> gpu, int rank);
/// The GPU behind the device of a rank; other devices as they are.
Device& hardware_of(Device& device);
const Device& hardware_of(const Device& device);

}  // namespace seqtile::fabric
