// jit/fabric/core/virtual_device.cpp -- see virtual_device.h.
// SPDX-License-Identifier: Apache-2.0
#include "jit/fabric/core/virtual_device.h"

#include <utility>

#include <fmt/format.h>

#include "jit/device/device_wrapper.h"
#include "jit/fabric/core/agreement.h"

namespace seqtile::fabric {
namespace {

/// A rank's own handle of a kernel.
class VirtualKernel final : public LoadedKernel {
 public:
  explicit VirtualKernel(std::shared_ptr<const LoadedKernel> loaded)
      : LoadedKernel(loaded->binary()), loaded_(std::move(loaded)) {}
  const LoadedKernel& loaded() const { return *loaded_; }

 private:
  std::shared_ptr<const LoadedKernel> loaded_;
};

class VirtualStreams final : public DeviceStreams {
 public:
  explicit VirtualStreams(Device& gpu) : gpu_(gpu) {}
  Stream create() override { return gpu_.streams().create(); }
  void destroy(Stream stream) noexcept override { gpu_.streams().destroy(stream); }
  void synchronize(Stream stream) override { gpu_.streams().synchronize(stream); }
  std::unique_ptr<Event> create_event() override { return gpu_.streams().create_event(); }
  void begin_capture(Stream) override {
    throw Error(
        ErrorCode::unsupported,
        fmt::format("ranks that share {} cannot capture: a launch is that of all of them; call without a graph, or "
                    "give each rank a GPU",
                    gpu_.info().name));
  }
  std::unique_ptr<Graph> end_capture(Stream stream) override { return gpu_.streams().end_capture(stream); }

 private:
  Device& gpu_;
};

class VirtualDevice final : public DeviceWrapper {
 public:
  VirtualDevice(std::shared_ptr<SharedGpu> shared, int rank)
      : DeviceWrapper(shared->gpu()), shared_(std::move(shared)), rank_(rank), streams_(inner()) {}

  DeviceStreams& streams() override { return streams_; }
  std::unique_ptr<LoadedKernel> load(KernelBinary binary) override {
    return std::make_unique<VirtualKernel>(shared_->load(std::move(binary)));
  }
  void launch(const LoadedKernel& kernel, const Grid& grid, std::span<const uint64_t> slots, Stream stream,
              GridRange range) override {
    const LoadedKernel& loaded = static_cast<const VirtualKernel&>(kernel).loaded();
    if (kernel.binary().gpu.ranks_in_launch == 1) inner().launch(loaded, grid, slots, stream, range);
    else shared_->launch(rank_, loaded, {grid, slots}, stream);
  }

 private:
  const std::shared_ptr<SharedGpu> shared_;
  const int rank_;
  VirtualStreams streams_;
};

}  // namespace

SharedGpu::SharedGpu(std::shared_ptr<Device> gpu, int world_size, std::chrono::nanoseconds timeout)
    : gpu_(std::move(gpu)), timeout_(timeout), ranks_(static_cast<size_t>(world_size)) {
  if (!gpu_->target().is_gpu())
    throw Error(ErrorCode::unsupported,
                fmt::format("{} ranks cannot share {}, which is no GPU; use threads, or sim:sm_80", world_size,
                            gpu_->info().name));
}

std::shared_ptr<const LoadedKernel> SharedGpu::load(KernelBinary binary) {
  if (binary.gpu.is_in_order && static_cast<int>(binary.gpu.ranks_in_launch) != world_size())
    throw Error(ErrorCode::invalid_argument,
                fmt::format("kernel {}: compiled for {} ranks in a launch, {} share the GPU", binary.symbol,
                            binary.gpu.ranks_in_launch, world_size()));
  const std::lock_guard lock(mutex_);
  std::erase_if(kernels_, [](const auto& kernel) { return kernel.expired(); });
  for (const auto& each : kernels_)
    if (auto kernel = each.lock();
        kernel && kernel->binary().symbol == binary.symbol && kernel->binary().code == binary.code)
      return kernel;
  std::shared_ptr<const LoadedKernel> kernel = gpu_->load(std::move(binary));
  kernels_.push_back(kernel);
  return kernel;
}

void SharedGpu::launch(int rank, const LoadedKernel& kernel, const RankArguments& arguments, Stream stream) {
  std::unique_lock lock(mutex_);
  Rank& own = ranks_[static_cast<size_t>(rank)];
  own.kernel = &kernel, own.arguments = arguments, own.stream = stream;
  ++num_here_;
  last_came_ = Clock::now();
  const uint64_t number = number_;
  changed_.notify_all();
  while (number_ == number) {
    const Clock::time_point deadline = last_came_ + timeout_;
    if (num_here_ + num_left_ >= world_size() || Clock::now() >= deadline) launch_all();
    else changed_.wait_until(lock, deadline);
  }
  if (const auto error = std::exchange(own.error, std::nullopt)) throw *error;
}

void SharedGpu::leave() {
  const std::lock_guard lock(mutex_);
  ++num_left_;
  changed_.notify_all();
}

// Launches the ranks that have come. The other ranks do nothing; kernels that wait for them time out.
void SharedGpu::launch_all() {
  const std::optional<Error> problem = problem_in([this] { hand_off(); });
  for (Rank& rank : ranks_)  // each gets a text of its own: ThreadSanitizer does not see how copies share one
    if (std::exchange(rank.kernel, nullptr) && problem) rank.error.emplace(problem->code(), problem->what());
  num_here_ = 0;
  ++number_;
  changed_.notify_all();
}

void SharedGpu::hand_off() {
  std::vector<RankArguments> arguments;
  const Rank* first = nullptr;
  for (const Rank& rank : ranks_) {
    arguments.push_back(rank.kernel ? rank.arguments : RankArguments{});
    if (!rank.kernel) continue;
    if (!first) first = &rank;
    if (rank.kernel != first->kernel)
      throw Error(
          ErrorCode::invalid_argument,
          fmt::format("ranks {} and {} launch different kernels, {} and {}; ranks that share a GPU take the same "
                      "operations in the same order, with shares of the same size",
                      first - ranks_.data(), &rank - ranks_.data(), first->kernel->binary().symbol,
                      rank.kernel->binary().symbol));
  }
  const JointArguments joint = joint_arguments(first->kernel->binary(), arguments, gpu_->info().name);
  const auto for_each_other_stream = [&](const auto& act) {
    for (Rank& rank : ranks_) {
      if (!rank.kernel || rank.stream.handle == first->stream.handle) continue;
      if (!rank.event) rank.event = gpu_->streams().create_event();
      act(rank);
    }
  };
  for_each_other_stream([&](Rank& rank) {
    rank.event->record(rank.stream);
    rank.event->delay(first->stream);
  });
  gpu_->launch(*first->kernel, joint.grid, joint.slots, first->stream);
  for_each_other_stream([&](Rank& rank) {
    rank.event->record(first->stream);
    rank.event->delay(rank.stream);
  });
}

std::unique_ptr<Device> make_virtual_device(std::shared_ptr<SharedGpu> gpu, int rank) {
  return std::make_unique<VirtualDevice>(std::move(gpu), rank);
}

}  // namespace seqtile::fabric
