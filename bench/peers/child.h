// bench/peers/child.h -- a Python child process that is spoken to in JSON lines.
// SPDX-License-Identifier: Apache-2.0
//
// The child and the processes that it starts are stopped (SIGSTOP) but while they work on a command: threads that spin
// for more work would take a core from the measurements of others. They are a process group of their own.
#pragma once
#include <sys/types.h>

#include <cstdio>
#include <string>

#include <nlohmann/json_fwd.hpp>

namespace seqtile::bench {

class Child {
 public:
  /// Starts `python` with `script`, which lies beside this executable. Errors: io when it cannot be started.
  Child(const std::string& python, const std::string& script);
  ~Child();
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  /// The next line. Errors: io (the child has ended or answers no JSON), unsupported (the child's own error).
  nlohmann::json receive();
  /// Sends a command and receives its answer.
  nlohmann::json ask(const nlohmann::json& command);

 private:
  /// To all of the group.
  void signal_group(int number) const;

  pid_t pid_ = -1;
  std::FILE* input_ = nullptr;
  std::FILE* output_ = nullptr;
};

}  // namespace seqtile::bench
