// autotune/worker/process.h -- one worker process as the tuner sees it: started, asked with a time limit, killed.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <sys/types.h>

#include <cstdint>
#include <string>

#include "autotune/worker/channel.h"

namespace seqtile::autotune {

class WorkerProcess {
 public:
  /// Starts `program` by exec and waits for its greeting.
  /// Errors: unsupported when it is no program that calls run_worker(); out_of_resources.
  explicit WorkerProcess(const std::string& program);
  WorkerProcess(const WorkerProcess&) = delete;
  WorkerProcess& operator=(const WorkerProcess&) = delete;
  ~WorkerProcess();  ///< kills it

  enum class Status { ok, crashed, hung };
  /// Sends the request and waits for the reply. After anything but `ok` the process is gone and cause() says why.
  Status ask(const std::string& request, std::span<const std::byte> payload, Message& reply, double limit_s);
  void stop() { end(false); }
  bool is_alive() const { return pid_ > 0; }
  const std::string& cause() const { return cause_; }  ///< "signal 11 (Segmentation fault)"
  int64_t current() const;                             ///< the candidate that ran last in measure, or -1

 private:
  void end(bool crashed);

  pid_t pid_ = -1;
  Channel channel_;
  int shared_fd_ = -1;
  volatile int64_t* shared_ = nullptr;
  std::string cause_;
};

/// This executable, or SEQTILE_WORKER. Errors: unsupported where that is no program, and in a process that was itself
/// started as a worker but does not call run_worker(): starting another would go on for ever.
std::string worker_program();

}  // namespace seqtile::autotune
