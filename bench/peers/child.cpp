// bench/peers/child.cpp -- see child.h.
// SPDX-License-Identifier: Apache-2.0
#include "bench/peers/child.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "jit/base/spawn.h"
#include "seqtile/error.h"

namespace seqtile::bench {

using nlohmann::json;

Child::Child(const std::string& python, const std::string& script) {
  signal(SIGPIPE, SIG_IGN);  // a write to a dead child returns an error instead of ending this process
  const std::string path = std::filesystem::read_symlink("/proc/self/exe").parent_path() / script;
  int to_child[2], from_child[2];
  if (pipe2(to_child, O_CLOEXEC) != 0 || pipe2(from_child, O_CLOEXEC) != 0)
    throw Error(ErrorCode::io, std::string("bench: no pipe for PyTorch: ") + std::strerror(errno));
  const int status = spawn({.program = python,
                            .arguments = {python, "-u", path},
                            .input = to_child[0],
                            .output = from_child[1],
                            .leads_group = true},  // the group's id is the child's pid
                           pid_);
  close(to_child[0]);
  close(from_child[1]);
  input_ = fdopen(to_child[1], "w");
  output_ = fdopen(from_child[0], "r");
  if (status != 0) throw Error(ErrorCode::io, "bench: --torch " + python + ": " + std::strerror(status));
}

Child::~Child() {
  signal_group(SIGCONT);
  if (input_) std::fclose(input_);  // the child ends when its input ends
  if (output_) std::fclose(output_);
  if (pid_ > 0) waitpid(pid_, nullptr, 0);
}

void Child::signal_group(int number) const {
  if (pid_ > 0) kill(-pid_, number);
}

json Child::receive() {
  char* line = nullptr;
  size_t capacity = 0;
  const ssize_t length = getline(&line, &capacity, output_);
  signal_group(SIGSTOP);
  const json reply = length > 0 ? json::parse(line, line + length, nullptr, false) : json(json::value_t::discarded);
  std::free(line);
  if (reply.is_discarded()) throw Error(ErrorCode::io, "bench: PyTorch's process ended or answered no JSON");
  if (reply.contains("error")) throw Error(ErrorCode::unsupported, "PyTorch: " + reply["error"].get<std::string>());
  return reply;
}

json Child::ask(const json& command) {
  signal_group(SIGCONT);
  std::fprintf(input_, "%s\n", command.dump().c_str());
  std::fflush(input_);
  return receive();
}

}  // namespace seqtile::bench
