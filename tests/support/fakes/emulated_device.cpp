// tests/support/fakes/emulated_device.cpp -- see emulated_device.h.
// SPDX-License-Identifier: Apache-2.0
#include "tests/support/fakes/emulated_device.h"

#include <bit>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "jit/base/spawn.h"
#include "jit/runtime/cpu/host_memory.h"
#include "seqtile/error.h"

#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

// emulated_device.cmake defines both if it has found the tools.
#ifndef SEQTILE_QEMU_AARCH64
#define SEQTILE_QEMU_AARCH64 ""
#endif
#ifndef SEQTILE_BLOB_RUNNER
#define SEQTILE_BLOB_RUNNER ""
#endif

namespace seqtile::testing {
namespace {

namespace fs = std::filesystem;

const std::string kQemu = SEQTILE_QEMU_AARCH64, kRunner = SEQTILE_BLOB_RUNNER;

class EmulatedKernel final : public LoadedKernel {
 public:
  explicit EmulatedKernel(KernelBinary binary) : LoadedKernel(std::move(binary)) {}
};

class QemuDevice final : public EmulatedDevice {
 public:
  QemuDevice() : target_(cpu_target("neon")) {
    std::string folder = (fs::temp_directory_path() / "seqtile-qemu-XXXXXX").string();
    if (!mkdtemp(folder.data())) throw Error(ErrorCode::io, "no temporary folder for the emulated device: " + folder);
    folder_ = folder;
    info_ = {"cpu", "AArch64 under qemu-user", {{"target", target_.name}}};
  }
  ~QemuDevice() override {
    std::error_code ignored;
    fs::remove_all(folder_, ignored);
  }

  const DeviceInfo& info() const override { return info_; }
  const Target& target() const override { return target_; }
  void register_memory(std::span<std::byte> memory) override { memory_.push_back(memory); }
  void forget_memory() override { memory_.clear(); }

  std::unique_ptr<LoadedKernel> load(KernelBinary binary) override {
    if (binary.target != target_.name)
      throw Error(ErrorCode::invalid_argument,
                  fmt::format("kernel {} is for {}, this device runs {}", binary.symbol, binary.target, target_.name));
    return std::make_unique<EmulatedKernel>(std::move(binary));
  }

  DeviceMemory& memory() override { return cpu::host_memory(); }
  DeviceStreams& streams() override { return cpu::host_streams(); }

  void launch(const LoadedKernel& kernel, const Grid& grid, std::span<const uint64_t> slots, Stream,
              GridRange range) override {
    const KernelBinary& binary = kernel.binary();
    const int64_t programs = grid[0] * grid[1] * grid[2];
    const int64_t count = range.count < 0 ? programs - range.first : range.count;
    write("blob", binary.code);
    for (size_t i = 0; i < memory_.size(); ++i) write(memory_name(i), memory_[i]);
    write_slots(slots);
    std::vector<std::string> arguments = {kQemu, kRunner, folder_ / "blob", std::to_string(binary.entry_offset),
                                          std::to_string(binary.arena_bytes)};
    for (const int64_t axis : grid) arguments.push_back(std::to_string(axis));
    arguments.insert(arguments.end(), {std::to_string(range.first), std::to_string(count), folder_ / "slots"});
    run(arguments);
    for (size_t i = 0; i < memory_.size(); ++i) read_back(memory_name(i), memory_[i]);
  }

 private:
  static std::string memory_name(size_t index) { return fmt::format("memory{}", index); }

  void write(const std::string& name, std::span<const std::byte> bytes) const {
    std::ofstream file(folder_ / name, std::ios::binary);
    file.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
    if (!file.flush()) throw Error(ErrorCode::io, fmt::format("cannot write {} bytes of {}", bytes.size(), name));
  }

  void read_back(const std::string& name, std::span<std::byte> bytes) const {
    std::ifstream file(folder_ / name, std::ios::binary);
    file.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
    if (!file) throw Error(ErrorCode::io, fmt::format("cannot read {} bytes of {}", bytes.size(), name));
  }

  void write_slots(std::span<const uint64_t> slots) const {
    std::ofstream file(folder_ / "slots");
    for (const uint64_t slot : slots) {
      std::string line = fmt::format("value {:x}\n", slot);
      for (size_t i = 0; i < memory_.size(); ++i) {
        const auto start = std::bit_cast<uint64_t>(memory_[i].data());
        if (slot >= start && slot - start < memory_[i].size())
          line = fmt::format("memory {} {}\n", (folder_ / memory_name(i)).string(), slot - start);
      }
      file << line;
    }
  }

  static void run(const std::vector<std::string>& arguments) {
    pid_t child = 0;
    int status = -1;
    if (spawn({.program = arguments[0], .arguments = arguments}, child) != 0 || waitpid(child, &status, 0) < 0)
      throw Error(ErrorCode::io, fmt::format("cannot run {}", arguments[0]));
    if (status != 0)
      throw Error(ErrorCode::aborted,
                  fmt::format("the emulated kernel ended with {} {}", WIFSIGNALED(status) ? "signal" : "status",
                              WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status)));
  }

  Target target_;
  DeviceInfo info_;
  fs::path folder_;
  std::vector<std::span<std::byte>> memory_;
};

}  // namespace

std::unique_ptr<EmulatedDevice> make_emulated_device() {
  if (!kQemu.empty() && !kRunner.empty()) return std::make_unique<QemuDevice>();
  std::puts("not run: AArch64 needs qemu-aarch64 and aarch64-linux-gnu-gcc when the tests are configured");
  return nullptr;
}

}  // namespace seqtile::testing
