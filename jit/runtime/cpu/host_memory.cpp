// jit/runtime/cpu/host_memory.cpp -- see host_memory.h.
// SPDX-License-Identifier: Apache-2.0
#include "jit/runtime/cpu/host_memory.h"

#include "jit/base/forever.h"

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <optional>

#include "seqtile/error.h"

#include <fmt/format.h>

namespace seqtile::cpu {
namespace {

class HostMemory final : public DeviceMemory {
 public:
  void* allocate(size_t bytes) override {
    constexpr size_t kAlignment = 256;
    void* data = bytes > SIZE_MAX - kAlignment
                     ? nullptr
                     : std::aligned_alloc(kAlignment, (bytes + kAlignment) / kAlignment * kAlignment);
    if (!data)
      throw Error(
          ErrorCode::out_of_resources,
          fmt::format("no memory for {} bytes: the system has no more; lower lengths or a channel's capacity", bytes));
    return data;
  }
  void free(void* pointer) noexcept override { std::free(pointer); }
  void copy(void* to, const void* from, size_t bytes, Stream) override { std::memmove(to, from, bytes); }
  void fill(void* pointer, uint8_t byte, size_t bytes, Stream) override { std::memset(pointer, byte, bytes); }
  bool is_host() const override { return true; }
};

class ClockEvent final : public Event {
 public:
  void record(Stream) override { time_ = Clock::now(); }
  void delay(Stream) override {}
  double us_since(const Event& earlier) override {
    const auto& from = static_cast<const ClockEvent&>(earlier).time_;
    if (!from || !time_) throw Error(ErrorCode::invalid_argument, "an event that was not recorded has no time");
    return std::chrono::duration<double, std::micro>(*time_ - *from).count();
  }

 private:
  using Clock = std::chrono::steady_clock;
  std::optional<Clock::time_point> time_;
};

class HostStreams final : public DeviceStreams {
 public:
  Stream create() override { return {}; }
  void destroy(Stream) noexcept override {}
  void synchronize(Stream) override {}
  std::unique_ptr<Event> create_event() override { return std::make_unique<ClockEvent>(); }
  void begin_capture(Stream) override { refuse(); }
  std::unique_ptr<Graph> end_capture(Stream) override { refuse(); }

 private:
  [[noreturn]] static void refuse() {
    throw Error(ErrorCode::unsupported, "a CPU captures no graphs; call the operation instead");
  }
};

}  // namespace

DeviceMemory& host_memory() {
  static HostMemory& memory = forever(HostMemory());
  return memory;
}

DeviceStreams& host_streams() {
  static HostStreams& streams = forever(HostStreams());
  return streams;
}

}  // namespace seqtile::cpu
