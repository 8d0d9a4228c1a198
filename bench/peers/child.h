// bench/peers/child.h -- a Python child process that is spoken to in JSON lines.
// SPDX-License-Identifier: Apache-2.0
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
  nlohmann::json ask(const nlohmann::json& command);

 private:
  pid_t pid_ = -1;
  std::FILE* input_ = nullptr;
  std::FILE* output_ = nullptr;
};

}  // namespace seqtile::bench
