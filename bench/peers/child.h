// bench/peers/child.h -- a Python child process that answers commands in JSON lines.
// SPDX-License-Identifier: Apache-2.0
//
// The child and its own child processes form a process group. The group is stopped (SIGSTOP) except while it works on a
// command: its threads spin for more work, which would take a core from the measurements of others.
#pragma once
#include <sys/types.h>

#include <cstdio>
#include <string>

#include <nlohmann/json_fwd.hpp>

namespace seqtile::bench {

class Child {
 public:
  /// Starts `python` with `script`, a file beside this executable. Errors: io if it cannot be started.
  Child(const std::string& python, const std::string& script);
  ~Child();
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  /// Reads the next line. Errors: io if the child has ended or its answer is no JSON; unsupported for an error that the
  /// child reports.
  nlohmann::json receive();
  /// Sends a command and receives its answer.
  nlohmann::json ask(const nlohmann::json& command);

 private:
  /// Sends a signal to every process of the group.
  void signal_group(int number) const;

  pid_t pid_ = -1;
  std::FILE* input_ = nullptr;
  std::FILE* output_ = nullptr;
};

}  // namespace seqtile::bench
