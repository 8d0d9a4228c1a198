// jit/codegen/nvptx/child_process.cpp -- see child_process.h.
// SPDX-License-Identifier: Apache-2.0
#include "jit/codegen/nvptx/child_process.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstring>
#include <utility>

#include "seqtile/error.h"

#include <fmt/format.h>

extern char** environ;

namespace seqtile {
namespace {

constexpr size_t kMaxOutput = 64 << 10;
constexpr rlim_t kMaxFileBytes = 256 << 20;

/// Data that the child needs between its start and exec. It is made before, because the child must not allocate.
struct Start {
  std::vector<char*> argv;
  std::vector<int> descriptors;
  int input = -1, output = -1;
  std::pair<__rlimit_resource, rlimit> limits[4];
};

/// Sets limits that the kernel keeps: limits of processor time and file sizes hold also if this process is killed and
/// cannot wait for the child.
Start prepare(std::span<const std::string> arguments, std::span<const MemoryFile* const> files, int input, int output,
              const ChildLimits& limits) {
  const auto both = [](rlim_t value) { return rlimit{value, value}; };
  const rlim_t seconds = static_cast<rlim_t>(std::ceil(std::min(limits.seconds, limits.processor_seconds)));
  Start start{{},
              {},
              input,
              output,
              {{RLIMIT_AS, both(limits.memory_bytes)},
               {RLIMIT_CPU, {seconds, seconds + 2}},
               {RLIMIT_FSIZE, both(kMaxFileBytes)},
               {RLIMIT_CORE, both(0)}}};
  for (const std::string& argument : arguments) start.argv.push_back(const_cast<char*>(argument.c_str()));
  start.argv.push_back(nullptr);
  for (const MemoryFile* file : files) start.descriptors.push_back(file->descriptor());
  return start;
}

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

/// The child, which shares this process's memory until it execs. Returns errno.
int become(const Start& start) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);  // a hung child does not outlive its parent, whose time limit it had
  if (dup2(start.input, STDIN_FILENO) < 0 || dup2(start.output, STDOUT_FILENO) < 0 ||
      dup2(start.output, STDERR_FILENO) < 0)
    return errno;
  close_descriptors_at_exec();  // a connection of this process would not end while the child has it
  for (const int descriptor : start.descriptors) fcntl(descriptor, F_SETFD, 0);  // stays open: the flags are its own
  for (const auto& [which, value] : start.limits) setrlimit(which, &value);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  execve(start.argv[0], start.argv.data(), environ);
  return errno;
}

/// Starts the child in a group of its own; returns errno. posix_spawn could not set limits before the program runs.
__attribute__((noinline)) int spawn(const Start& start, pid_t& pid) {
  sigset_t all, old;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &old);  // no handler of ours runs in the child
  volatile int failed = 0;                   // written by the child, in the memory that it shares
  const pid_t child = vfork();
  if (child == 0) {
    failed = become(start);
    _exit(127);
  }
  const int error = child < 0 ? errno : failed;
  pthread_sigmask(SIG_SETMASK, &old, nullptr);
  if (child > 0 && error) waitpid(child, nullptr, 0);
  pid = child;
  return error;
}

/// True when the process has ended; it is left as a zombie, so that its group's number stays taken.
bool wait_until_ended(pid_t pid, double seconds) {
  using Clock = std::chrono::steady_clock;
  const auto deadline = Clock::now() + std::chrono::duration<double>(seconds);
  while (true) {
    siginfo_t info = {};
    const int failed = waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOHANG | WNOWAIT);
    if (failed && errno != EINTR) return true;
    if (!failed && info.si_pid == pid) return true;
    if (Clock::now() >= deadline) return false;
    usleep(300);
  }
}

}  // namespace

MemoryFile::MemoryFile(std::string_view contents) : fd_(memfd_create("seqtile", MFD_CLOEXEC)) {
  const auto fail = [&] {
    throw Error(ErrorCode::out_of_resources,
                fmt::format("cannot make a file of {} bytes in memory: {}", contents.size(), std::strerror(errno)));
  };
  if (fd_ < 0) fail();
  for (size_t done = 0; done < contents.size();) {
    const ssize_t count = write(fd_, contents.data() + done, contents.size() - done);
    if (count <= 0) {
      close(fd_);
      fail();
    }
    done += static_cast<size_t>(count);
  }
}

MemoryFile::~MemoryFile() { close(fd_); }

std::string MemoryFile::path() const { return fmt::format("/proc/self/fd/{}", fd_); }

std::string MemoryFile::read(size_t limit) const {
  struct stat facts = {};
  if (fstat(fd_, &facts) != 0) return {};
  std::string text(std::min(limit, static_cast<size_t>(facts.st_size)), '\0');
  size_t size = 0;
  for (ssize_t count = 1; count > 0 && size < text.size(); size += static_cast<size_t>(std::max<ssize_t>(count, 0)))
    count = pread(fd_, text.data() + size, text.size() - size, static_cast<off_t>(size));
  text.resize(size);
  return text;
}

std::string ChildResult::cause(const ChildLimits& limits) const {
  if (is_timed_out) return fmt::format("no answer within {:g} s", limits.seconds);
  if (signal == SIGXCPU)
    return fmt::format("no answer within {:g} s of processor time", std::min(limits.seconds, limits.processor_seconds));
  if (signal) return fmt::format("signal {} ({})", signal, strsignal(signal));
  return fmt::format("exit status {}", exit_status);
}

ChildResult run_child(std::span<const std::string> arguments, std::span<const MemoryFile* const> files,
                      const ChildLimits& limits) {
  const MemoryFile input, output;
  pid_t pid = -1;
  if (const int failed = spawn(prepare(arguments, files, input.descriptor(), output.descriptor(), limits), pid))
    throw Error(ErrorCode::unsupported, fmt::format("cannot start {}: {}", arguments[0], std::strerror(failed)));
  ChildResult result;
  result.is_timed_out = !wait_until_ended(pid, limits.seconds);
  kill(-pid, SIGKILL);
  int state = 0;
  rusage used = {};
  while (wait4(pid, &state, 0, &used) < 0 && errno == EINTR) {
  }
  for (const timeval& time : {used.ru_utime, used.ru_stime})
    result.processor_seconds += static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  if (WIFSIGNALED(state)) result.signal = WTERMSIG(state);
  else result.exit_status = WEXITSTATUS(state);
  result.output = output.read(kMaxOutput);
  return result;
}

}  // namespace seqtile
