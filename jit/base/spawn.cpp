// jit/base/spawn.cpp -- see spawn.h.
// SPDX-License-Identifier: Apache-2.0
#include "jit/base/spawn.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>

extern char** environ;

namespace seqtile {
namespace {

/// Closes all but the standard descriptors at the next exec. Calls nothing that allocates or locks.
void close_descriptors_at_exec() {
  constexpr unsigned kFirst = STDERR_FILENO + 1, kCloseAtExec = 1 << 2;  // CLOSE_RANGE_CLOEXEC, of Linux 5.11
  if (syscall(SYS_close_range, kFirst, ~0u, kCloseAtExec) == 0) return;
  rlimit limit = {};
  getrlimit(RLIMIT_NOFILE, &limit);
  const rlim_t end = std::min<rlim_t>(limit.rlim_cur, 1 << 16);  // the limit may be a billion
  for (rlim_t descriptor = kFirst; descriptor < end; ++descriptor)
    fcntl(static_cast<int>(descriptor), F_SETFD, FD_CLOEXEC);
}

/// Puts `descriptor` in the place of a standard one. Its own number may be the same, with a flag that closes it.
bool put_in_place(int descriptor, int standard) {
  if (descriptor < 0) return true;
  return descriptor == standard ? fcntl(descriptor, F_SETFD, 0) == 0 : dup2(descriptor, standard) >= 0;
}

/// Sets every signal that this process handles to its default: a handler would run in the child, on the memory of both.
/// Ignored signals stay ignored, as at any exec.
void drop_handlers() {
  for (int signal = 1; signal < NSIG; ++signal) {
    struct sigaction action = {};
    if (sigaction(signal, nullptr, &action) != 0 || action.sa_handler == SIG_IGN || action.sa_handler == SIG_DFL)
      continue;
    action = {};
    action.sa_handler = SIG_DFL;
    sigaction(signal, &action, nullptr);
  }
}

/// The child, which shares this process's memory until it execs and must not allocate. Returns errno.
int become(const ChildProgram& child, char* const* argv) {
  if (child.leads_group) setpgid(0, 0);
  if (child.ends_with_thread) prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (!put_in_place(child.input, STDIN_FILENO) || !put_in_place(child.output, STDOUT_FILENO) ||
      !put_in_place(child.error, STDERR_FILENO))
    return errno;
  close_descriptors_at_exec();
  for (const int descriptor : child.descriptors) fcntl(descriptor, F_SETFD, 0);
  for (const auto& [which, value] : child.limits) setrlimit(which, &value);
  drop_handlers();
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  const bool is_path = child.program.find('/') != std::string::npos;
  is_path ? execve(child.program.c_str(), argv, environ) : execvpe(child.program.c_str(), argv, environ);
  return errno;
}

/// A function of its own, because vfork() returns twice to it.
__attribute__((noinline)) int start(const ChildProgram& child, char* const* argv, pid_t& pid) {
  sigset_t all, old;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &old);  // the child has no handler when it takes its first signal
  volatile int failed = 0;                   // written by the child, in the memory that it shares
  const pid_t started = vfork();
  if (started == 0) {
    failed = become(child, argv);
    _exit(127);
  }
  const int error = started < 0 ? errno : failed;
  pthread_sigmask(SIG_SETMASK, &old, nullptr);
  if (started > 0 && error) waitpid(started, nullptr, 0);
  if (!error) pid = started;
  return error;
}

}  // namespace

int spawn(const ChildProgram& child, pid_t& pid) {
  std::vector<char*> argv;
  for (const std::string& argument : child.arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  return start(child, argv.data(), pid);
}

}  // namespace seqtile
