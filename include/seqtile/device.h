// include/seqtile/device.h -- places where kernels run: compiled kernels, executors, the host CPU, GPUs and profiles of
// GPUs.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "seqtile/target.h"
#include "seqtile/tensor.h"

namespace seqtile {

/// The resources of a GPU that a kernel takes, as the assembler reports them.
struct ResourceUse {
  int registers = 0;  ///< a thread
  int64_t spill_store_bytes = 0, spill_load_bytes = 0, stack_bytes = 0;
  int64_t shared_bytes = 0;           ///< static shared memory of a block
  std::vector<std::string> warnings;  ///< "(C7510) Potential Performance Loss: ..."
};

/// A kernel parameter of 128 bytes that a launch encodes from a view of the argument block. It describes what one TMA
/// copy moves.
struct TensorMapSpec {
  uint32_t first_slot = 0;  ///< the view's first slot: base, sizes, strides
  DType dtype = DType::bf16;
  std::vector<uint32_t> box;   ///< elements along each dimension of the view, outermost first; at most 256 each
  uint32_t swizzle_bytes = 0;  ///< 32, 64, 128, or 0 for none: how the box lies in shared memory
  bool operator==(const TensorMapSpec&) const = default;
};

/// How a GPU launches a kernel. Parameters: the argument block's slots; for a persistent kernel the grid's three sides;
/// then the tensor maps. Ranks that share a launch have a table of slots and sides instead, with a row for each rank.
struct GpuLaunch {
  uint32_t threads = 0;                         ///< a block
  uint32_t shared_bytes = 0;                    ///< dynamic shared memory of a block
  std::array<uint32_t, 3> cluster = {1, 1, 1};  ///< blocks; grids are rounded up to whole clusters
  bool is_persistent = false;   ///< as many blocks as fit the GPU take the programs in turn, first along axis 0
  bool is_cooperative = false;  ///< blocks wait for each other: all of them must run at once
  std::vector<TensorMapSpec> tensor_maps;
  std::string loop;          ///< form of the loop of products: "wgmma", or "portable: " and why; empty: there is none
  bool is_in_order = false;  ///< persistent programs wait for earlier ones alone: any number of blocks is enough
  uint32_t ranks_in_launch = 1;  ///< ranks that run side by side, each in the same number of neighbouring blocks
  bool operator==(const GpuLaunch&) const = default;
};

/// Machine code of one kernel. For the CPU: one relocation-free block, text and constants laid out together, that
/// can be mapped anywhere at a page boundary. For GPUs: PTX or cubin (the `stage`).
struct KernelBinary {
  std::string symbol;  ///< <kernel>_<dtype>_<config...>_<target>; also the name in profiles
  std::string target;  ///< e.g. "cpu:avx512bf16"; a device refuses a binary of another target
  std::string stage;   ///< "blob" | "ptx" | "cubin"
  std::vector<std::byte> code;
  uint64_t entry_offset = 0;             ///< where the program function begins in `code`
  uint64_t arena_bytes = 0;              ///< scratch memory that one running program needs, 64-byte aligned
  uint32_t num_slots = 0;                ///< 8-byte slots of the argument block
  GpuLaunch gpu;                         ///< GPUs only
  std::optional<ResourceUse> resources;  ///< for a cubin that was just assembled; not kept in stores
};

using Grid = std::array<int64_t, 3>;  ///< programs along axes 0 (fastest), 1, 2

// An ArtifactStore keeps compiled binaries; the cache implements it.

/// The key of a stored binary: everything that its bytes depend on.
struct ArtifactKey {
  std::string hash;      ///< hex SHA-256 of `manifest`
  std::string manifest;  ///< readable: operation, source hash, static fields, configuration, target, toolchain
};

/// Thread-safe. Neither call throws for a damaged, foreign, locked or unwritable store: a load is then a miss, a store
/// a no-op with one log line and a counter.
class ArtifactStore {
 public:
  virtual ~ArtifactStore() = default;
  virtual std::optional<KernelBinary> load(const ArtifactKey& key) = 0;
  /// True when it is stored.
  virtual bool store(const ArtifactKey& key, const KernelBinary& binary) = 0;
  /// All of `keys` in one read transaction; absent ones are empty.
  virtual std::vector<std::optional<KernelBinary>> load_all(const std::vector<ArtifactKey>& keys) = 0;
};

// An Executor has the threads that run the programs of a grid on the host: a fixed set of preallocated workers; the
// caller is worker 0. A server may hand in its own pool by implementing Executor. Programs of one run may execute in
// any order and must not wait for each other.

class Executor {
 public:
  /// Runs items [begin, end) of the run; called from several threads at once.
  using Task = void (*)(void* context, int64_t begin, int64_t end);

  virtual ~Executor() = default;
  /// Threads that can work on one run, the caller included.
  virtual int num_workers() const = 0;
  /// Runs `count` items in chunks of at least one and returns when all are done. May be called from many threads: a
  /// run that finds the workers busy with another goes ahead on its caller alone. Never throws, never allocates.
  virtual void run(int64_t count, Task task, void* context) = 0;
};

/// Our own pool of `num_threads` (the caller and num_threads - 1 workers, spinning briefly before they sleep).
std::unique_ptr<Executor> make_executor(int num_threads);
/// The threads of the OpenMP library that this process has loaded (libgomp, libiomp5, libomp): for processes whose
/// other operators use them, as PyTorch's do. 0: as many as OpenMP takes by itself. Each caller has threads of its
/// own, as OpenMP has it. In the child of a fork, runs of an executor of the parent go ahead on their caller alone.
/// Where the parent has used OpenMP before the first executor was made, a child's OpenMP may hang, as that of other
/// operators.
/// Errors: unsupported where no such library is loaded, and in a child of a fork whose parent had such an executor;
/// invalid_argument on a number that no executor has.
std::unique_ptr<Executor> make_openmp_executor(int num_threads = 0);
/// Whether make_openmp_executor() has a library and, as far as it knows, threads.
bool has_openmp();

// A Device is a place where kernels run: the host CPU, simulated GPUs, GPUs, by one interface.
//
// Work on GPUs is asynchronous: launches, copies and fills of one stream happen in the order they were asked for, and
// the caller goes on meanwhile. A CPU does them at once. Devices are thread-safe on distinct streams.

/// Identity of a device. It enters the key of every tuning record.
struct DeviceInfo {
  std::string kind;                                        ///< "cpu", "sim"
  std::string name;                                        ///< "AMD EPYC", for people
  std::vector<std::pair<std::string, std::string>> facts;  ///< model, target, cores, cache sizes: sorted by name
};

/// A binary made executable on a device; the mapping lives as long as this object.
class LoadedKernel {
 public:
  virtual ~LoadedKernel() = default;
  const KernelBinary& binary() const { return binary_; }

 protected:
  explicit LoadedKernel(KernelBinary binary) : binary_(std::move(binary)) {}
  KernelBinary binary_;
};

/// Part of a grid in linear order (axis 0 fastest); count < 0 means all of it.
struct GridRange {
  int64_t first = 0, count = -1;
};

/// An order of launches and copies: the driver's own handle. Null is the device's default order. A CPU has one order.
struct Stream {
  void* handle = nullptr;
};

/// Memory that kernels of a device reach. Pointers are unique in the process, so that a tensor needs no device.
class DeviceMemory {
 public:
  virtual ~DeviceMemory() = default;
  /// Contents are undefined, alignment is 256 bytes. Errors: out_of_resources with the bytes asked for and free.
  virtual void* allocate(size_t bytes) = 0;
  /// Waits for the launches that may use the memory. Null is allowed.
  virtual void free(void* pointer) noexcept = 0;
  /// Copies in stream order. Either side may be host memory, which must stay as it is until synchronize(stream).
  virtual void copy(void* to, const void* from, size_t bytes, Stream stream = {}) = 0;
  virtual void fill(void* pointer, uint8_t byte, size_t bytes, Stream stream = {}) = 0;
  /// True where kernels reach ordinary host memory, and the host may read and write what allocate() gives.
  virtual bool is_host() const = 0;
};

/// A point in the order of a stream. Not thread-safe.
class Event {
 public:
  virtual ~Event() = default;
  /// Happens when all earlier work of `stream` is done; replaces an earlier recording.
  virtual void record(Stream stream) = 0;
  /// Later work of `stream` starts after the event; one that was never recorded delays nothing.
  virtual void delay(Stream stream) = 0;
  /// Microseconds from `earlier` to this event; waits for both. Errors: invalid_argument where one was not recorded.
  virtual double us_since(const Event& earlier) = 0;
};

/// Launches and copies that were captured; kernels and memory that they name must outlive it.
class Graph {
 public:
  virtual ~Graph() = default;
  virtual void launch(Stream stream) = 0;
  virtual int num_kernels() const = 0;
};

class DeviceStreams {
 public:
  virtual ~DeviceStreams() = default;
  /// A stream that does not wait for the default order. Destroy it when its work is done.
  virtual Stream create() = 0;
  virtual void destroy(Stream stream) noexcept = 0;
  /// Waits for the work of the stream. Errors: driver, for what earlier launches did wrong.
  virtual void synchronize(Stream stream) = 0;
  virtual std::unique_ptr<Event> create_event() = 0;
  /// From here to end_capture() the stream's launches, copies and fills are recorded and not done. Other streams work
  /// on; memory may be allocated meanwhile, and anything that waits for `stream` is an error.
  /// Errors: unsupported on CPUs; invalid_argument on the default order or a stream that captures already.
  virtual void begin_capture(Stream stream) = 0;
  virtual std::unique_ptr<Graph> end_capture(Stream stream) = 0;
};

class Device {
 public:
  virtual ~Device() = default;
  virtual const DeviceInfo& info() const = 0;
  virtual const Target& target() const = 0;
  virtual DeviceMemory& memory() = 0;
  virtual DeviceStreams& streams() = 0;
  /// How the device runs at this moment, in words: clocks, and the reasons that slow them. Empty where it is not known.
  virtual std::string condition() { return ""; }
  /// Maps the binary. Errors: invalid_argument on another target's binary; out_of_resources.
  virtual std::unique_ptr<LoadedKernel> load(KernelBinary binary) = 0;
  /// One launch: runs `grid` programs with the argument block `slots` (see ir::num_slots), which is read before this
  /// returns. Returns when the launch is handed off; on the CPU that is when it is done. Faults of a kernel are
  /// thrown here or by a later synchronize(). No allocation, no lock before the hand-off. Only CPUs take a range.
  virtual void launch(const LoadedKernel& kernel, const Grid& grid, std::span<const uint64_t> slots, Stream stream = {},
                      GridRange range = {}) = 0;
};

/// Memory of a device, freed with the object; the device outlives it.
class DeviceBuffer {
 public:
  DeviceBuffer() = default;
  DeviceBuffer(DeviceMemory& memory, size_t bytes) : memory_(&memory), data_(memory.allocate(bytes)), bytes_(bytes) {}
  DeviceBuffer(DeviceBuffer&& other) noexcept { swap(other); }
  DeviceBuffer& operator=(DeviceBuffer&& other) noexcept {
    swap(other);
    return *this;
  }
  ~DeviceBuffer() {
    if (data_) memory_->free(data_);
  }
  void* data() const { return data_; }
  size_t bytes() const { return bytes_; }

 private:
  void swap(DeviceBuffer& other) {
    std::swap(memory_, other.memory_);
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
  }
  DeviceMemory* memory_ = nullptr;
  void* data_ = nullptr;
  size_t bytes_ = 0;
};

/// A stream of a device, destroyed with the object; the device outlives it.
class OwnedStream {
 public:
  explicit OwnedStream(DeviceStreams& streams) : streams_(streams), stream_(streams.create()) {}
  OwnedStream(const OwnedStream&) = delete;
  OwnedStream& operator=(const OwnedStream&) = delete;
  ~OwnedStream() { streams_.destroy(stream_); }
  operator Stream() const { return stream_; }  // NOLINT: it stands for its stream

 private:
  DeviceStreams& streams_;
  Stream stream_;
};

/// The host CPU with `num_threads` workers of our own, or the caller's executor (not owned).
std::unique_ptr<Device> make_cpu_device(int num_threads);
std::unique_ptr<Device> make_cpu_device(Executor& executor);

/// Cores that this process may use: containers and taskset leave it a part of the machine's cores.
int cores_available();
/// Opens a device by name. "cpu": the host; `num_threads` 0 means cores_available(). "sim:sm_80" and "sim:sm_90a":
/// machines that execute PTX (docs/ptx_machine.md) on `num_threads` cores.
/// Errors: unsupported for devices that are not in this machine or build ("cuda": no driver).
std::unique_ptr<Device> open_device(const std::string& name, int num_threads);
/// Every device found, for `seqtile devices`.
std::vector<DeviceInfo> list_devices();

// A DeviceProfile stands for a GPU that is not in this machine: enough facts to compile, rank and store for it.
//
// A profile is a file in jit/device/profiles/, built into the library. open_device("h200") gives a device whose
// identity in keys equals that of the GPU itself, so that decisions and binaries made without it serve it. It cannot
// launch.

struct DeviceProfile {
  std::string name;  ///< "h200"
  GpuFacts facts;
  std::vector<std::string> sources;  ///< the origins of the numbers
};

/// h200, h100_sxm, a100.
const std::vector<DeviceProfile>& device_profiles();
/// A profile by its name, or by a target that stands for one: "sm_90a" for h200, "sm_80" for a100. Null: there is none.
const DeviceProfile* find_profile(std::string_view name);

/// The profile that `device` stands for; null for a device that can launch.
const DeviceProfile* profile_of(const Device& device);

/// The target of open_device(name), found without taking anything of the device: for processes that only compile.
/// Errors: as open_device().
Target device_target(const std::string& name);

}  // namespace seqtile
