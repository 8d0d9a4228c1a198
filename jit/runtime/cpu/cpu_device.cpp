// jit/runtime/cpu/cpu_device.cpp -- maps blobs and runs their programs on an executor; no LLVM here.
// SPDX-License-Identifier: Apache-2.0
#include "jit/runtime/cpu/cpu_device.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>

#include "jit/abi/program_fn.h"
#include "jit/runtime/cpu/host_memory.h"
#include "seqtile/error.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

namespace seqtile {
namespace {

/// Anonymous pages of our own, unmapped with the object.
class Pages {
 public:
  Pages() = default;
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;
  ~Pages() { reset(); }

  /// Maps at least `bytes` zeroed bytes in place of what was mapped; false when the system refuses.
  bool map(size_t bytes) {
    reset();
    void* base = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base == MAP_FAILED) return false;
    data_ = static_cast<std::byte*>(base);
    size_ = bytes;
    return true;
  }
  bool make_executable() { return mprotect(data_, size_, PROT_READ | PROT_EXEC) == 0; }
  std::byte* data() const { return data_; }
  size_t size() const { return size_; }

 private:
  void reset() {
    if (data_) munmap(data_, size_);
    data_ = nullptr;
    size_ = 0;
  }

  std::byte* data_ = nullptr;
  size_t size_ = 0;
};

/// Scratch memory of this thread for running programs: it only grows, and only when a kernel needs more than every
/// kernel before it, so that launches of warm kernels allocate nothing. Null when the system refuses.
std::byte* thread_arena(size_t bytes) {
  constexpr size_t kHugePage = 2 << 20, kStep = 64 << 10;
  thread_local Pages pages;
  thread_local std::byte* start = nullptr;
  thread_local size_t capacity = 0;
  if (bytes <= capacity) return start;
  const size_t alignment = bytes >= kHugePage ? kHugePage : kStep;
  const size_t rounded = (bytes + alignment - 1) / alignment * alignment;
  capacity = 0;
  if (!pages.map(rounded + (alignment == kHugePage ? kHugePage : 0))) return nullptr;
  const auto address = reinterpret_cast<uintptr_t>(pages.data());
  start = pages.data() + (alignment == kHugePage ? (kHugePage - address % kHugePage) % kHugePage : 0);
  // Advice only: without huge pages the arena is as correct, with more misses in the address translation.
  if (alignment == kHugePage) madvise(start, rounded, MADV_HUGEPAGE);
  capacity = rounded;
  return start;
}

class CpuKernel final : public LoadedKernel {
 public:
  explicit CpuKernel(KernelBinary binary) : LoadedKernel(std::move(binary)) {
    const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    const size_t bytes = (binary_.code.size() + page - 1) / page * page;
    if (!pages_.map(bytes)) fail("map");
    std::memcpy(pages_.data(), binary_.code.data(), binary_.code.size());
    if (!pages_.make_executable()) fail("make executable");
    auto* code = reinterpret_cast<char*>(pages_.data());
    __builtin___clear_cache(code, code + bytes);
    program_ = reinterpret_cast<cpu::ProgramFn>(pages_.data() + binary_.entry_offset);
  }

  cpu::ProgramFn program() const { return program_; }

 private:
  [[noreturn]] void fail(const char* what) const {
    throw Error(ErrorCode::out_of_resources, fmt::format("kernel {}: cannot {} {} bytes of code: {}", binary_.symbol,
                                                         what, binary_.code.size(), std::strerror(errno)));
  }

  Pages pages_;
  cpu::ProgramFn program_ = nullptr;
};

/// State that the workers of one launch share. It lives on the stack of the launch's caller.
struct Launch {
  cpu::ProgramFn program;
  const uint64_t* slots;
  Grid grid;
  int64_t first;
  size_t arena_bytes;
  std::atomic<bool> is_out_of_memory{false};
};

void run_programs(void* context, int64_t begin, int64_t end) {
  auto& launch = *static_cast<Launch*>(context);
  std::byte* arena = thread_arena(launch.arena_bytes);
  if (!arena && launch.arena_bytes > 0) {
    launch.is_out_of_memory.store(true, std::memory_order_relaxed);
    return;
  }
  const Grid& grid = launch.grid;
  const int64_t linear = launch.first + begin;
  int64_t pid[3] = {linear % grid[0], linear / grid[0] % grid[1], linear / grid[0] / grid[1]};
  for (int64_t i = begin; i < end; ++i) {
    launch.program(launch.slots, pid, grid.data(), arena);
    if (++pid[0] < grid[0]) continue;
    pid[0] = 0;
    if (++pid[1] < grid[1]) continue;
    pid[1] = 0;
    ++pid[2];
  }
}

class CpuDevice final : public Device {
 public:
  CpuDevice(std::unique_ptr<Executor> owned, Executor& executor)
      : owned_(std::move(owned)), executor_(executor), info_(cpu::describe_host()) {}

  const DeviceInfo& info() const override { return info_; }
  const Target& target() const override { return host_target(); }

  std::unique_ptr<LoadedKernel> load(KernelBinary binary) override {
    check(binary);
    // The caller is worker 0 of its launches: its arena grows here, those of the other workers at their first program.
    if (!thread_arena(binary.arena_bytes) && binary.arena_bytes > 0) throw_out_of_memory(binary);
    return std::make_unique<CpuKernel>(std::move(binary));
  }

  DeviceMemory& memory() override { return cpu::host_memory(); }
  DeviceStreams& streams() override { return cpu::host_streams(); }

  void launch(const LoadedKernel& kernel, const Grid& grid, std::span<const uint64_t> slots, Stream,
              GridRange range) override {
    const auto& loaded = static_cast<const CpuKernel&>(kernel);
    const KernelBinary& binary = loaded.binary();
    if (slots.size() != binary.num_slots)
      throw Error(ErrorCode::invalid_argument, fmt::format("kernel {}: {} argument slots were given, it takes {}",
                                                           binary.symbol, slots.size(), binary.num_slots));
    const int64_t programs = grid_size(binary, grid);
    const int64_t count = range.count < 0 ? programs - range.first : range.count;
    if (range.first < 0 || count < 0 || range.first > programs - count)
      throw Error(ErrorCode::invalid_argument,
                  fmt::format("kernel {}: programs {} to {} were asked for, the grid has {}", binary.symbol,
                              range.first, range.first + count, programs));
    Launch launch{loaded.program(), slots.data(), grid, range.first, binary.arena_bytes};
    executor_.run(count, run_programs, &launch);
    if (launch.is_out_of_memory.load(std::memory_order_relaxed)) throw_out_of_memory(binary);
  }

 private:
  static void check(const KernelBinary& binary) {
    const auto refuse = [&](const std::string& reason) {
      throw Error(ErrorCode::invalid_argument, fmt::format("kernel {}: {}", binary.symbol, reason));
    };
    const std::vector<std::string> names = cpu_target_names();
    const bool runs_here = std::any_of(names.begin(), names.end(), [&](const std::string& name) {
      return binary.target == "cpu:" + name && is_executable(cpu_target(name));
    });
    if (!runs_here)
      refuse(fmt::format("its target {} is not one that this machine executes (its own is {}); compile it again here",
                         binary.target, host_target().name));
    if (binary.stage != "blob") refuse(fmt::format("a CPU runs stage blob, not {}", binary.stage));
    if (binary.entry_offset >= binary.code.size())
      refuse(fmt::format("the entry at byte {} lies outside of its {} bytes of code", binary.entry_offset,
                         binary.code.size()));
  }

  /// A grid with an axis of 0 has no programs.
  static int64_t grid_size(const KernelBinary& binary, const Grid& grid) {
    int64_t size = 1;
    for (const int64_t axis : grid)
      if (axis < 0 || __builtin_mul_overflow(size, axis, &size))
        throw Error(ErrorCode::invalid_argument, fmt::format("kernel {}: a grid of {} x {} x {} programs",
                                                             binary.symbol, grid[0], grid[1], grid[2]));
    return size;
  }

  [[noreturn]] static void throw_out_of_memory(const KernelBinary& binary) {
    throw Error(ErrorCode::out_of_resources,
                fmt::format("kernel {}: each thread needs {} bytes of scratch memory and the system has no more; use "
                            "fewer threads or smaller tiles",
                            binary.symbol, binary.arena_bytes));
  }

  std::unique_ptr<Executor> owned_;
  Executor& executor_;
  DeviceInfo info_;
};

}  // namespace

std::unique_ptr<Device> make_cpu_device(int num_threads) {
  auto executor = make_executor(num_threads);
  Executor& reference = *executor;
  return std::make_unique<CpuDevice>(std::move(executor), reference);
}

std::unique_ptr<Device> make_cpu_device(Executor& executor) { return std::make_unique<CpuDevice>(nullptr, executor); }

}  // namespace seqtile
