// jit/sim/device/sim_world.h -- simulated GPUs that reach each other's memory: one machine, and a queue of work for
// each GPU.
// SPDX-License-Identifier: Apache-2.0
//
// A GPU alone does its work when it is asked for. GPUs of a world of several keep their work and do it together,
// because kernels of one GPU may wait for kernels of another. The work is done as soon as every GPU is waited for, or
// when a thread waits and nothing was asked for during a second (then a rank has stalled, and kernels that wait for it
// time out).
#pragma once
#include <chrono>
#include <condition_variable>
#include <exception>
#include <functional>
#include <mutex>
#include <vector>

#include "jit/sim/exec/machine.h"
#include "seqtile/error.h"

namespace seqtile::sim {

/// The error of a launch with reports: timeout where it did not end, else driver. `kernel` comes first in the message.
Error launch_error(const LaunchResult& result, const std::string& kernel);

class SimWorld {
 public:
  explicit SimWorld(int num_devices) : queues_(static_cast<size_t>(num_devices)) {}

  /// Whether work waits for the work of other devices.
  bool is_shared() const { return queues_.size() > 1; }
  std::recursive_mutex& mutex() { return mutex_; }  ///< guards the machine; host work of a queue runs under it
  Machine& machine() { return machine_; }           ///< under the mutex

  /// A launch of a device, or work of the host in the order of its launches. Not for a device alone.
  void add(int device, Launch launch);
  void add(int device, std::function<void()> work);
  /// Returns when the work of `device` is done. Errors: driver, timeout: faults of kernels, or another error that has
  /// ended a round; every device throws it.
  void finish(int device, const Options& options);

 private:
  struct Item {
    Launch launch;  ///< without a program: host work alone
    std::function<void()> work;
  };
  struct Queue {
    std::vector<Item> items;
    bool is_waited_for = false;
    std::exception_ptr error;  ///< the error of a round, for the thread that waits for this device
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
