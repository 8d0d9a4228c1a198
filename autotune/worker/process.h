// autotune/worker/process.h -- the tuner's end of one worker process: start, request with a time limit, kill.
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
  /// Errors: unsupported if the program does not call run_worker(); out_of_resources if it cannot be started.
  explicit WorkerProcess(const std::string& program);
  WorkerProcess(const WorkerProcess&) = delete;
  WorkerProcess& operator=(const WorkerProcess&) = delete;
  ~WorkerProcess();  ///< kills the process

  enum class Status { ok, crashed, hung };
  /// Sends the request and waits for the reply, at most `limit_s` seconds. Unless the status is `ok`, the process has
  /// ended and cause() gives the reason.
  Status ask(const std::string& request, std::span<const std::byte> payload, Message& reply, double limit_s);
  void stop() { end(false); }  ///< kills the process
  bool is_alive() const { return pid_ > 0; }
  const std::string& cause() const { return cause_; }  ///< "signal 11 (Segmentation fault)"
  int64_t current() const;                             ///< position of the candidate launched last by measure, or -1

 private:
  void end(bool crashed);
  void release(bool crashed);  ///< end(), and what the constructor has made

  pid_t pid_ = -1;
  Channel channel_;
  int shared_fd_ = -1;
  volatile int64_t* shared_ = nullptr;
  std::string cause_;
};

/// SEQTILE_WORKER, or the path of this executable. Errors: unsupported if SEQTILE_WORKER is no executable file, or
/// without it if this program has not called run_worker(): it would run main() again.
std::string worker_program();

}  // namespace seqtile::autotune
