// jit/sim/device/sim_device.cpp -- see sim_device.h.
// SPDX-License-Identifier: Apache-2.0
#include "jit/sim/device/sim_device.h"

#include <algorithm>
#include <mutex>
#include <utility>

#include "jit/device/gpu_launch.h"
#include "jit/sim/device/sim_memory.h"
#include "jit/sim/device/sim_world.h"
#include "jit/sim/memory/sim_tensor_map.h"
#include "seqtile/error.h"

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
  PtxDevice(std::string_view target, int num_threads, std::shared_ptr<SimWorld> world, int index)
      : target_(gpu_target(target)),
        info_{"sim", fmt::format("simulated {}", target_.name), {{"target", target_.name}}},
        world_(std::move(world)),
        index_(index) {
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
  Machine& machine() override { return world_->machine(); }
  void* allocate_for_peers(size_t bytes) override { return memory_.allocate(bytes, true); }
  Options& options() override { return options_; }
  const LaunchProgress& progress() const override { return world_->machine().progress(); }
  const LaunchResult& last_launch() const override { return last_; }

 private:
  void run(const SimKernel& kernel, const Launch& launch);

  Target target_;
  DeviceInfo info_;
  std::unique_ptr<Executor> executor_;
  std::shared_ptr<SimWorld> world_;
  const int index_;
  Options options_;
  LaunchResult last_;
  std::vector<const void*> registered_;
  SimStreams streams_{[this] {
    if (world_->is_shared()) world_->finish(index_, options_);
  }};
  SimMemory memory_{*world_, index_, streams_};
};

/// A device runs the text of older targets too, but none of newer ones.
void check_target(const PtxModule& module, std::string_view device) {
  if (module.target <= parse_ptx_target(device).value()) return;
  throw Error(
      ErrorCode::invalid_argument,
      fmt::format("PTX line {}: .target {} does not run on sim:{}; use sim:sm_90a, or have the text made for {}",
                  module.target_line, ptx_target_name(module.target), device, device));
}

std::unique_ptr<LoadedKernel> PtxDevice::load(KernelBinary binary) {
  if (binary.target != target_.name || binary.stage != "ptx")
    throw Error(ErrorCode::invalid_argument, fmt::format("kernel {}: a {} of {} does not run on sim:{}", binary.symbol,
                                                         binary.stage, binary.target, target_.name));
  const std::string_view text(reinterpret_cast<const char*>(binary.code.data()), binary.code.size());
  const PtxModule module = parse_ptx(text);
  check_target(module, target_.name);
  Program program = decode(module, binary.symbol);
  return std::make_unique<SimKernel>(std::move(binary), std::move(program));
}

namespace {

/// Blocks that run at once. Few blocks of a persistent kernel do, fewer than a GPU holds, so that small grids take
/// turns too.
int64_t resident_blocks(const KernelBinary& binary, const Target& target) {
  const int64_t few = 4 * int64_t{binary.gpu.ranks_in_launch};
  return binary.gpu.is_cooperative && !binary.gpu.is_in_order ? target.gpu.num_multiprocessors : few;
}

LaunchShape shape_of(const KernelBinary& binary, const GpuGrid& grid) {
  LaunchShape shape;
  shape.threads = static_cast<int>(binary.gpu.threads);
  shape.shared_bytes = binary.gpu.shared_bytes;
  shape.cooperative = binary.gpu.is_cooperative;
  for (size_t axis = 0; axis < 3; ++axis) {
    shape.cluster[axis] = static_cast<int>(binary.gpu.cluster[axis]);
    shape.grid[axis] = static_cast<int>(grid.blocks[axis]);
  }
  return shape;
}

/// The parameter block: the slots, a persistent kernel's grid, then the tensor maps that are made of the slots.
std::vector<std::byte> parameters(const KernelBinary& binary, std::span<const uint64_t> slots, const GpuGrid& grid) {
  std::vector<std::byte> block;
  for (const uint64_t slot : slots) append_param(block, slot);
  for (const uint64_t side : grid.programs)
    if (takes_grid(binary.gpu)) append_param(block, side);
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
  check_slots(binary, slots);
  const GpuGrid launched = gpu_grid(binary, grid, resident_blocks(binary, target_), "sim:" + target_.name);
  if (launched.is_empty()) return;
  const int64_t shared = loaded.program().static_shared_bytes + binary.gpu.shared_bytes;
  if (shared > target_.shared_bytes)
    throw Error(ErrorCode::out_of_resources, fmt::format("kernel {}: {} bytes of shared memory, a block of {} has {}",
                                                         binary.symbol, shared, target_.name, target_.shared_bytes));
  streams_.add(stream,
               {[this, &loaded,
                 launch = Launch{&loaded.program(), shape_of(binary, launched), parameters(binary, slots, launched)}] {
                  if (world_->is_shared()) world_->add(index_, launch);
                  else run(loaded, launch);
                },
                true});
}

void PtxDevice::run(const SimKernel& kernel, const Launch& launch) {
  const std::lock_guard lock(world_->mutex());
  last_ = world_->machine().launch(*launch.program, launch.shape, launch.params, options_);
  if (!last_.ok()) throw launch_error(last_, "kernel " + kernel.binary().symbol + ": ");
}

void PtxDevice::register_memory(std::string name, std::span<std::byte> memory) {
  const std::lock_guard lock(world_->mutex());
  world_->machine().register_memory(std::move(name), memory.data(), memory.size(), index_);
  registered_.push_back(memory.data());
}

void PtxDevice::forget_memory() {
  const std::lock_guard lock(world_->mutex());
  for (const void* pointer : registered_) world_->machine().unregister_memory(pointer);
  registered_.clear();
}

}  // namespace

std::unique_ptr<SimDevice> make_sim_device(std::string_view target, int num_threads) {
  return std::make_unique<PtxDevice>(target, num_threads, std::make_shared<SimWorld>(1), 0);
}

}  // namespace seqtile::sim

namespace seqtile {

std::vector<std::unique_ptr<PeerDevice>> make_sim_devices(std::string_view target, int count) {
  const auto world = std::make_shared<sim::SimWorld>(count);
  std::vector<std::unique_ptr<PeerDevice>> devices;
  for (int i = 0; i < count; ++i) devices.push_back(std::make_unique<sim::PtxDevice>(target, 1, world, i));
  return devices;
}

}  // namespace seqtile
