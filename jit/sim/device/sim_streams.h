// jit/sim/device/sim_streams.h -- streams, events and graphs of a simulated GPU.
// SPDX-License-Identifier: Apache-2.0
//
// Work is done when it is asked for, which is one of the orders that streams allow; while a stream captures, its work
// is kept instead, and a graph does it again at every launch. Thread-safe on distinct streams.
#pragma once
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "seqtile/device.h"

namespace seqtile::sim {

class SimStreams final : public DeviceStreams {
 public:
  struct Work {
    std::function<void()> run;
    bool is_kernel = false;
  };

  /// `finish` does work that was put off, if there is any.
  explicit SimStreams(std::function<void()> finish);
  ~SimStreams() override;
  /// Does the work, or keeps it if the stream captures.
  void add(Stream stream, Work work);

  Stream create() override;
  void destroy(Stream stream) noexcept override;
  void synchronize(Stream stream) override;
  std::unique_ptr<Event> create_event() override;
  void begin_capture(Stream stream) override;
  std::unique_ptr<Graph> end_capture(Stream stream) override;

 private:
  struct Order;
  Order* find(Stream stream);

  const std::function<void()> finish_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<Order>> orders_;
};

}  // namespace seqtile::sim
