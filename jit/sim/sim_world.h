// jit/sim/sim_world.h -- simulated GPUs that reach each other's memory: one machine, and what each GPU has to do.
// SPDX-License-Identifier: Apache-2.0
//
// A GPU alone does its work when it is asked for. GPUs of a world of several keep it and do it together, because
// kernels of one may wait for those of another: as soon as every GPU is waited for, or when somebody waits and nothing
// was asked for during a second (then a rank has stalled, and kernels that wait for it see their deadline).
#pragma once
#include <chrono>
#include <condition_variable>
#include <exception>
#include <functional>
#include <mutex>
#include <vector>

#include "jit/error.h"
#include "jit/sim/machine.h"

namespace seqtile::sim {

/// What a launch with reports throws: timeout where it did not end, else driver. `kernel` comes first in the message.
Error launch_error(const LaunchResult& result, const std::string& kernel);

class SimWorld {
 public:
  explicit SimWorld(int num_devices) : queues_(static_cast<size_t>(num_devices)) {}

  /// Work waits for that of other devices.
  bool is_shared() const { return queues_.size() > 1; }
  std::recursive_mutex& mutex() { return mutex_; }  ///< of the machine; host work of a queue runs under it
  Machine& machine() { return machine_; }           ///< under the mutex

  /// A launch of a device, or work of the host in the order of its launches. Not for a device alone.
  void add(int device, Launch launch);
  void add(int device, std::function<void()> work);
  /// Does what was asked for. Errors: driver, timeout: what kernels did wrong, and whatever else has ended a round, on
  /// every device.
  void finish(int device, const Options& options);

 private:
  struct Item {
    Launch launch;  ///< without a program: host work alone
    std::function<void()> work;
  };
  struct Queue {
    std::vector<Item> items;
    bool is_waited_for = false;
    std::exception_ptr error;  ///< what a round has thrown, for whoever waits for this device
  };
  bool is_everyone_waiting() const;
  void run(const Options& options);
  void fail(const std::exception_ptr& error);
  void run_round(const Options& options);

  std::recursive_mutex mutex_;
  std::condition_variable_any changed_;
  Machine machine_;
  std::vector<Queue> queues_;
  std::chrono::steady_clock::time_point last_added_{};
};

}  // namespace seqtile::sim
