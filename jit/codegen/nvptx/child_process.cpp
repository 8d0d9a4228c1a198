// jit/codegen/nvptx/child_process.cpp -- see child_process.h.
// SPDX-License-Identifier: Apache-2.0
#include "jit/codegen/nvptx/child_process.h"

#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstring>

#include "jit/base/spawn.h"
#include "seqtile/error.h"

#include <fmt/format.h>

namespace seqtile {
namespace {

constexpr size_t kMaxOutput = 64 << 10;
constexpr rlim_t kMaxFileBytes = 256 << 20;

/// The child, with limits that the kernel keeps: limits of processor time and file sizes hold also if this process is
/// killed and cannot wait for the child.
ChildProgram limited(std::span<const std::string> arguments, std::span<const MemoryFile* const> files, int input,
                     int output, const ChildLimits& limits) {
  const auto both = [](rlim_t value) { return rlimit{value, value}; };
  const rlim_t seconds = static_cast<rlim_t>(std::ceil(std::min(limits.seconds, limits.processor_seconds)));
  ChildProgram child{.program = arguments[0],
                     .arguments = std::vector<std::string>(arguments.begin(), arguments.end()),
                     .input = input,
                     .output = output,
                     .error = output,
                     .leads_group = true,
                     .ends_with_thread = true,  // a hung child does not outlive the thread that limits its time
                     .limits = {{RLIMIT_AS, both(limits.memory_bytes)},
                                {RLIMIT_CPU, {seconds, seconds + 2}},
                                {RLIMIT_FSIZE, both(kMaxFileBytes)},
                                {RLIMIT_CORE, both(0)}}};
  for (const MemoryFile* file : files) child.descriptors.push_back(file->descriptor());
  return child;
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
  if (const int failed = spawn(limited(arguments, files, input.descriptor(), output.descriptor(), limits), pid))
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
