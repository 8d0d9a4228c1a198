// jit/device/device.h -- a place where kernels run: the host CPU, simulated GPUs, GPUs, by one interface.
// SPDX-License-Identifier: Apache-2.0
//
// Work on GPUs is asynchronous: launches, copies and fills of one stream happen in the order they were asked for, and
// the caller goes on meanwhile. A CPU does them at once. Devices are thread-safe on distinct streams.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "jit/device/executor.h"
#include "jit/device/kernel.h"
#include "jit/device/target.h"

namespace seqtile {

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
  /// One launch for all ranks of a kernel that ranks share (GpuLaunch::ranks_in_launch). launch() of such a kernel runs
  /// the first rank alone. Errors: as launch(), unsupported on devices that have no such kernels.
  virtual void launch_ranks(const LoadedKernel& kernel, std::span<const RankArguments> ranks, Stream stream);
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

}  // namespace seqtile
