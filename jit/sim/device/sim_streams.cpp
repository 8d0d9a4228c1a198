// jit/sim/device/sim_streams.cpp -- see sim_streams.h.
// SPDX-License-Identifier: Apache-2.0
#include "jit/sim/device/sim_streams.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>

#include "seqtile/error.h"

namespace seqtile::sim {
namespace {

[[noreturn]] void refuse(const char* problem) { throw Error(ErrorCode::invalid_argument, problem); }

class SimGraph final : public Graph {
 public:
  SimGraph(SimStreams& streams, std::vector<SimStreams::Work> work) : streams_(streams), work_(std::move(work)) {}
  void launch(Stream stream) override {
    for (const SimStreams::Work& work : work_) streams_.add(stream, work);
  }
  int num_kernels() const override {
    return static_cast<int>(std::count_if(work_.begin(), work_.end(), [](const auto& work) { return work.is_kernel; }));
  }

 private:
  SimStreams& streams_;
  std::vector<SimStreams::Work> work_;
};

}  // namespace

struct SimStreams::Order {
  bool is_capturing = false;
  std::vector<Work> captured;
};

namespace {

/// The host's clock: how long the simulation took, not how long a GPU would.
class SimEvent final : public Event {
 public:
  explicit SimEvent(SimStreams& streams) : streams_(streams) {}
  void record(Stream stream) override {
    streams_.synchronize(stream);
    time_ = Clock::now();
  }
  void delay(Stream stream) override { streams_.synchronize(stream); }
  double us_since(const Event& earlier) override {
    const auto& from = static_cast<const SimEvent&>(earlier).time_;
    if (!from || !time_) refuse("an event that was not recorded has no time");
    return std::chrono::duration<double, std::micro>(*time_ - *from).count();
  }

 private:
  using Clock = std::chrono::steady_clock;
  SimStreams& streams_;
  std::optional<Clock::time_point> time_;
};

}  // namespace

SimStreams::SimStreams(std::function<void()> finish) : finish_(std::move(finish)) {}
SimStreams::~SimStreams() = default;

SimStreams::Order* SimStreams::find(Stream stream) {
  if (!stream.handle) return nullptr;
  const std::lock_guard lock(mutex_);
  const auto found =
      std::find_if(orders_.begin(), orders_.end(), [&](const auto& order) { return order.get() == stream.handle; });
  if (found == orders_.end()) refuse("the stream is not one of this device");
  return found->get();
}

void SimStreams::add(Stream stream, Work work) {
  Order* order = find(stream);
  if (order && order->is_capturing) order->captured.push_back(std::move(work));
  else work.run();
}

Stream SimStreams::create() {
  const std::lock_guard lock(mutex_);
  orders_.push_back(std::make_unique<Order>());
  return {orders_.back().get()};
}

void SimStreams::destroy(Stream stream) noexcept {
  const std::lock_guard lock(mutex_);
  std::erase_if(orders_, [&](const auto& order) { return order.get() == stream.handle; });
}

void SimStreams::synchronize(Stream stream) {
  const Order* order = find(stream);
  if (order && order->is_capturing) refuse("the stream captures; nothing can wait for it before end_capture()");
  finish_();
}

std::unique_ptr<Event> SimStreams::create_event() { return std::make_unique<SimEvent>(*this); }

void SimStreams::begin_capture(Stream stream) {
  Order* order = find(stream);
  if (!order) refuse("the default order cannot be captured; create a stream");
  if (order->is_capturing) refuse("the stream captures already");
  order->is_capturing = true;
}

std::unique_ptr<Graph> SimStreams::end_capture(Stream stream) {
  Order* order = find(stream);
  if (!order || !order->is_capturing) refuse("the stream does not capture; call begin_capture() first");
  order->is_capturing = false;
  return std::make_unique<SimGraph>(*this, std::exchange(order->captured, {}));
}

}  // namespace seqtile::sim
