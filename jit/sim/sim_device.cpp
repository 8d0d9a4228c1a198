// jit/sim/sim_device.cpp -- see sim_device.h.
// SPDX-License-Identifier: Apache-2.0
#include "jit/sim/sim_device.h"

#include <mutex>
#include <utility>

#include "jit/error.h"
#include "jit/sim/tensor_map.h"
#include "jit/sim/sim_memory.h"

#include <fmt/format.h>

namespace seqtile::sim {
namespace {

class SimKernel final : public LoadedKernel {
 public:
  SimKernel(KernelBinary binary, Program program) : LoadedKernel(std::move(binary)), program_(std::move(program)) {}
  const Program& program() const { return program_; }

 private:
  Program program_;
};

class PtxDevice final : public SimDevice {
 public:
  PtxDevice(std::string_view target, int num_threads)
      : target_(gpu_target(target)),
        info_{"sim", fmt::format("simulated {}", target_.name), {{"target", target_.name}}} {
    if (num_threads <= 1) return;
    executor_ = make_executor(num_threads);
    options_.executor = executor_.get();
  }

  const DeviceInfo& info() const override { return info_; }
  const Target& target() const override { return target_; }
  DeviceMemory& memory() override { return memory_; }
  DeviceStreams& streams() override { return streams_; }
  std::unique_ptr<LoadedKernel> load(KernelBinary binary) override;
  void launch(const LoadedKernel& kernel, const Grid& grid, std::span<const uint64_t> slots, Stream stream,
              GridRange range) override;
  void name_memory(const void* pointer, std::string name) override { memory_.name(pointer, std::move(name)); }
  void register_memory(std::string name, std::span<std::byte> memory) override;
  void forget_memory() override;
  Machine& machine() override { return machine_; }
  Options& options() override { return options_; }
  const LaunchResult& last_launch() const override { return last_; }

 private:
  LaunchShape shape_of(const KernelBinary& binary, const Grid& grid) const;
  void run(const SimKernel& kernel, const LaunchShape& shape, std::span<const uint64_t> slots);

  Target target_;
  DeviceInfo info_;
  std::unique_ptr<Executor> executor_;
  std::mutex mutex_;  ///< of the machine
  Machine machine_;
  Options options_;
  LaunchResult last_;
  std::vector<const void*> registered_;
  SimStreams streams_;
  SimMemory memory_{machine_, mutex_, streams_};
};

std::unique_ptr<LoadedKernel> PtxDevice::load(KernelBinary binary) {
  if (binary.target != target_.name || binary.stage != "ptx")
    throw Error(ErrorCode::invalid_argument, fmt::format("kernel {}: a {} of {} does not run on sim:{}", binary.symbol,
                                                         binary.stage, binary.target, target_.name));
  const std::string_view text(reinterpret_cast<const char*>(binary.code.data()), binary.code.size());
  Program program = decode_text(text, binary.symbol);
  return std::make_unique<SimKernel>(std::move(binary), std::move(program));
}

LaunchShape PtxDevice::shape_of(const KernelBinary& binary, const Grid& grid) const {
  constexpr Grid kMost = {INT32_MAX, 65535, 65535};
  LaunchShape shape;
  for (size_t axis = 0; axis < 3; ++axis) {
    if (grid[axis] < 0 || grid[axis] > kMost[axis])
      throw Error(ErrorCode::invalid_argument,
                  fmt::format("kernel {}: a grid of {} x {} x {} programs; GPUs have at most {} x {} x {}",
                              binary.symbol, grid[0], grid[1], grid[2], kMost[0], kMost[1], kMost[2]));
    shape.grid[axis] = static_cast<int>(grid[axis]);
  }
  shape.threads = static_cast<int>(binary.gpu.threads);
  shape.shared_bytes = binary.gpu.shared_bytes;
  for (size_t axis = 0; axis < 3; ++axis) {
    const auto side = static_cast<int>(binary.gpu.cluster[axis]);
    shape.cluster[axis] = side;
    shape.grid[axis] = (shape.grid[axis] + side - 1) / side * side;
  }
  return shape;
}

namespace {

/// The parameter block: the slots, then the tensor maps that are made of them.
std::vector<std::byte> parameters(const KernelBinary& binary, std::span<const uint64_t> slots) {
  std::vector<std::byte> block;
  for (const uint64_t slot : slots) append_param(block, slot);
  for (const TensorMapSpec& map : binary.gpu.tensor_maps) {
    const TensorMapFacts facts = facts_of(map, slots);
    const auto rank = static_cast<size_t>(facts.rank);
    const Swizzle swizzle = map.swizzle_bytes == 128  ? Swizzle::b128
                            : map.swizzle_bytes == 64 ? Swizzle::b64
                            : map.swizzle_bytes == 32 ? Swizzle::b32
                                                      : Swizzle::none;
    const TensorElement element = map.dtype == DType::bf16  ? TensorElement::bf16
                                  : map.dtype == DType::f16 ? TensorElement::f16
                                                            : TensorElement::f32;
    append_param(block, encode_tensor_map(
                            element, reinterpret_cast<const void*>(facts.base), std::span(facts.sizes).first(rank),
                            std::span(facts.stride_bytes).first(rank - 1), std::span(facts.box).first(rank), swizzle));
  }
  return block;
}

}  // namespace

void PtxDevice::launch(const LoadedKernel& kernel, const Grid& grid, std::span<const uint64_t> slots, Stream stream,
                       GridRange range) {
  const auto& loaded = static_cast<const SimKernel&>(kernel);
  const KernelBinary& binary = loaded.binary();
  if (range.first != 0 || range.count >= 0)
    throw Error(ErrorCode::unsupported, "a part of a grid cannot be launched on sim:" + target_.name);
  if (slots.size() != binary.num_slots)
    throw Error(ErrorCode::invalid_argument, fmt::format("kernel {}: {} argument slots were given, it takes {}",
                                                         binary.symbol, slots.size(), binary.num_slots));
  const LaunchShape shape = shape_of(binary, grid);
  if (shape.grid[0] == 0 || shape.grid[1] == 0 || shape.grid[2] == 0) return;
  streams_.add(stream, {[this, &loaded, shape, block = std::vector<uint64_t>(slots.begin(), slots.end())] {
                          run(loaded, shape, block);
                        },
                        true});
}

void PtxDevice::run(const SimKernel& kernel, const LaunchShape& shape, std::span<const uint64_t> slots) {
  const std::lock_guard lock(mutex_);
  last_ = machine_.launch(kernel.program(), shape, parameters(kernel.binary(), slots), options_);
  if (!last_.ok())
    throw Error(ErrorCode::driver, fmt::format("kernel {}: {} ({} reports in all)", kernel.binary().symbol,
                                               last_.reports.front().message, last_.num_reports));
}

void PtxDevice::register_memory(std::string name, std::span<std::byte> memory) {
  const std::lock_guard lock(mutex_);
  machine_.register_memory(std::move(name), memory.data(), memory.size());
  registered_.push_back(memory.data());
}

void PtxDevice::forget_memory() {
  const std::lock_guard lock(mutex_);
  for (const void* pointer : registered_) machine_.unregister_memory(pointer);
  registered_.clear();
}

}  // namespace

std::unique_ptr<SimDevice> make_sim_device(std::string_view target, int num_threads) {
  return std::make_unique<PtxDevice>(target, num_threads);
}

}  // namespace seqtile::sim
