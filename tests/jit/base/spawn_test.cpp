// tests/jit/base/spawn_test.cpp -- what a child inherits, and how a program that cannot be started is told.
// SPDX-License-Identifier: Apache-2.0
#include "jit/base/spawn.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cerrno>
#include <csignal>
#include <fmt/format.h>
#include <string>

#include "jit/base/descriptor.h"

namespace seqtile {
namespace {

int exit_status_of(const ChildProgram& child) {
  pid_t pid = -1;
  REQUIRE(spawn(child, pid) == 0);
  int state = 0;
  REQUIRE(waitpid(pid, &state, 0) == pid);
  REQUIRE(WIFEXITED(state));
  return WEXITSTATUS(state);
}

ChildProgram shell(const std::string& script) { return {.program = "/bin/sh", .arguments = {"sh", "-c", script}}; }

}  // namespace

TEST_CASE("spawn: a child has the standard descriptors and those that it is given", "[jit]") {
  const Descriptor kept(open("/dev/null", O_RDONLY | O_CLOEXEC));
  const Descriptor below(open("/dev/null", O_RDONLY)), above(fcntl(kept.get(), F_DUPFD, 300));  // both may be inherited
  ChildProgram child =
      shell(fmt::format("cd /proc/self/fd; [ -e 1 ] && [ -e 2 ] && [ -e {} ] && "
                        "! [ -e {} ] && ! [ -e {} ]",
                        kept.get(), below.get(), above.get()));
  child.descriptors = {kept.get()};
  CHECK(exit_status_of(child) == 0);
  CHECK((fcntl(kept.get(), F_GETFD) & FD_CLOEXEC) != 0);  // the flags of this process's own stay
  CHECK((fcntl(below.get(), F_GETFD) & FD_CLOEXEC) == 0);
}

TEST_CASE("spawn: standard descriptors are replaced", "[jit]") {
  int to_child[2], from_child[2];
  REQUIRE(pipe2(to_child, O_CLOEXEC) == 0);
  REQUIRE(pipe2(from_child, O_CLOEXEC) == 0);
  REQUIRE(write(to_child[1], "word\n", 5) == 5);
  ChildProgram child = shell("read text; echo $text; echo $text >&2");
  child.input = to_child[0], child.output = child.error = from_child[1];
  CHECK(exit_status_of(child) == 0);
  char text[20];
  CHECK(std::string(text, static_cast<size_t>(read(from_child[0], text, sizeof text))) == "word\nword\n");
  for (const int end : {to_child[0], to_child[1], from_child[0], from_child[1]}) close(end);
}

TEST_CASE("spawn: group, limits and signals are the child's own", "[jit]") {
  sigset_t blocked, old;
  sigemptyset(&blocked);
  sigaddset(&blocked, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &blocked, &old);
  ChildProgram child = shell("[ $(ulimit -c) = 0 ] && kill -TERM $$; exit 3");
  child.leads_group = true;
  child.limits.push_back({RLIMIT_CORE, {0, 0}});
  pid_t pid = -1;
  REQUIRE(spawn(child, pid) == 0);
  sigset_t mask;
  pthread_sigmask(SIG_SETMASK, &old, &mask);
  CHECK(sigismember(&mask, SIGTERM) == 1);
  CHECK(getpgid(pid) == pid);
  int state = 0;
  REQUIRE(waitpid(pid, &state, 0) == pid);
  CHECK((WIFSIGNALED(state) && WTERMSIG(state) == SIGTERM));
}

TEST_CASE("spawn: names are searched in the path, and paths are not", "[jit]") {
  CHECK(exit_status_of({.program = "true", .arguments = {"true"}}) == 0);
  pid_t pid = -1;
  CHECK(spawn({.program = "./true", .arguments = {"true"}}, pid) == ENOENT);
  CHECK(spawn({.program = "/dev/null", .arguments = {"null"}}, pid) == EACCES);
  CHECK(pid == -1);
}

}  // namespace seqtile
