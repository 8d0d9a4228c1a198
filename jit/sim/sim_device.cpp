// jit/sim/sim_device.cpp -- see sim_device.h.
// SPDX-License-Identifier: Apache-2.0
#include "jit/sim/sim_device.h"

#include <cstring>
#include <utility>

#include "jit/error.h"

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
  explicit PtxDevice(std::string_view target)
      : target_(gpu_target(target)), info_{"sim", std::string(target), {{"target", std::string(target)}}} {}

  const DeviceInfo& info() const override { return info_; }
  const Target& target() const override { return target_; }
  std::unique_ptr<LoadedKernel> load(KernelBinary binary) override;
  void launch(const LoadedKernel& kernel, const Grid& grid, std::span<const uint64_t> slots, GridRange range) override;
  void register_memory(std::string name, std::span<std::byte> memory) override;
  void forget_memory() override;
  Machine& machine() override { return machine_; }
  Options& options() override { return options_; }
  const LaunchResult& last_launch() const override { return last_; }

 private:
  Target target_;
  DeviceInfo info_;
  Machine machine_;
  Options options_;
  LaunchResult last_;
  std::vector<const void*> registered_;
};

std::unique_ptr<LoadedKernel> PtxDevice::load(KernelBinary binary) {
  if (binary.target != target_.name || binary.stage != "ptx")
    throw Error(ErrorCode::invalid_argument, fmt::format("kernel {}: a {} of {} does not run on sim:{}", binary.symbol,
                                                         binary.stage, binary.target, target_.name));
  const std::string_view text(reinterpret_cast<const char*>(binary.code.data()), binary.code.size());
  Program program = decode_text(text, binary.symbol);
  return std::make_unique<SimKernel>(std::move(binary), std::move(program));
}

void PtxDevice::launch(const LoadedKernel& kernel, const Grid& grid, std::span<const uint64_t> slots, GridRange range) {
  if (range.first != 0 || range.count >= 0)
    throw Error(ErrorCode::unsupported, "a part of a grid cannot be launched on sim:" + target_.name);
  const auto& loaded = static_cast<const SimKernel&>(kernel);
  const KernelBinary& binary = loaded.binary();
  LaunchShape shape;
  for (size_t axis = 0; axis < 3; ++axis) shape.grid[axis] = static_cast<int>(grid[axis]);
  shape.threads = static_cast<int>(binary.threads);
  shape.shared_bytes = binary.shared_bytes;
  last_ = machine_.launch(loaded.program(), shape, std::as_bytes(slots), options_);
  if (!last_.ok())
    throw Error(ErrorCode::driver, fmt::format("kernel {}: {} ({} reports in all)", binary.symbol,
                                               last_.reports.front().message, last_.num_reports));
}

void PtxDevice::register_memory(std::string name, std::span<std::byte> memory) {
  machine_.register_memory(std::move(name), memory.data(), memory.size());
  registered_.push_back(memory.data());
}

void PtxDevice::forget_memory() {
  for (const void* pointer : registered_) machine_.unregister_memory(pointer);
  registered_.clear();
}

}  // namespace

std::unique_ptr<SimDevice> make_sim_device(std::string_view target) { return std::make_unique<PtxDevice>(target); }

}  // namespace seqtile::sim
