// autotune/worker/process.cpp -- see process.h.
// SPDX-License-Identifier: Apache-2.0
#include "autotune/worker/process.h"

#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>

#include "autotune/worker/worker_flag.h"
#include "jit/base/env.h"
#include "jit/base/spawn.h"
#include "seqtile/error.h"

namespace seqtile::autotune {
namespace {

constexpr double kGreetingLimit = 20;

[[noreturn]] void fail_start(const std::string& program, const std::string& why) {
  throw Error(ErrorCode::out_of_resources, "cannot start the tuning worker " + program + ": " + why);
}

/// Starts `program`, which inherits `socket` and `shared`. Returns an errno value, 0 on success.
int start(const std::string& program, int socket, int shared, pid_t& pid) {
  return spawn({.program = program,
                .arguments = {program, kWorkerFlag, std::to_string(socket), std::to_string(shared)},
                .descriptors = {socket, shared},
                .leads_group = true},  // processes of the worker are killed with it
               pid);
}

}  // namespace

std::string worker_program() {
  if (auto program = env::worker_program()) {
    struct stat facts = {};
    if (stat(program->c_str(), &facts) == 0 && S_ISREG(facts.st_mode) && access(program->c_str(), X_OK) == 0)
      return *program;
    throw Error(ErrorCode::unsupported, "SEQTILE_WORKER=" + *program +
                                            ": that is no program that can be run; give the path of one that calls "
                                            "seqtile::autotune::run_worker(), or unset it");
  }
  if (!program_is_worker)
    throw Error(ErrorCode::unsupported,
                "tuning runs candidates in other processes, and this program does not serve as one; call "
                "seqtile::autotune::run_worker() first thing in main(), or set SEQTILE_WORKER to a program that does "
                "(the command seqtile is one)");
  char path[4096];  // the real name, if it still exists, reads better in a process list
  const ssize_t length = readlink("/proc/self/exe", path, sizeof path);
  const std::string name(path, length > 0 ? static_cast<size_t>(length) : 0);
  return access(name.c_str(), X_OK) == 0 ? name : "/proc/self/exe";
}

WorkerProcess::WorkerProcess(const std::string& program) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) fail_start(program, std::strerror(errno));
  shared_fd_ = memfd_create("seqtile-worker", MFD_CLOEXEC);
  channel_ = Channel(ends[0]);
  void* page = MAP_FAILED;
  if (shared_fd_ >= 0 && ftruncate(shared_fd_, 4096) == 0)
    page = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, shared_fd_, 0);
  const int failed = page == MAP_FAILED ? errno : start(program, ends[1], shared_fd_, pid_);
  close(ends[1]);
  if (page != MAP_FAILED) shared_ = static_cast<volatile int64_t*>(page);
  if (failed) {
    pid_ = -1;
    release(false);
    fail_start(program, std::strerror(failed));
  }
  *shared_ = -1;
  Message greeting;
  if (channel_.receive(greeting, kGreetingLimit) != Channel::Status::ok) {
    release(true);
    throw Error(ErrorCode::unsupported, "the program " + program + " does not serve as a tuning worker (" + cause_ +
                                            "); call seqtile::autotune::run_worker() first thing in main(), or set "
                                            "SEQTILE_WORKER to a program that does");
  }
}

WorkerProcess::~WorkerProcess() { release(false); }

void WorkerProcess::release(bool crashed) {
  end(crashed);
  if (shared_) munmap(const_cast<int64_t*>(shared_), 4096);
  if (shared_fd_ >= 0) close(shared_fd_);
}

WorkerProcess::Status WorkerProcess::ask(const std::string& request, std::span<const std::byte> payload, Message& reply,
                                         double limit_s) {
  *shared_ = -1;
  Channel::Status status = Channel::Status::closed;
  if (channel_.send(request, payload)) status = channel_.receive(reply, limit_s);
  if (status == Channel::Status::ok) return Status::ok;
  end(status == Channel::Status::closed);
  if (status == Channel::Status::closed) return Status::crashed;
  cause_ = "no answer within " + std::to_string(static_cast<int>(limit_s + 0.999)) + " s";
  return Status::hung;
}

int64_t WorkerProcess::current() const { return shared_ ? *shared_ : -1; }

/// Reaps the process and notes how it ended. A crashed process has closed the connection and gets 50 ms to end with its
/// own signal or exit status; after that, and if it did not crash, it is killed.
void WorkerProcess::end(bool crashed) {
  if (pid_ > 0) {
    int state = 0;
    pid_t reaped = 0;
    for (int waits = 0; crashed && reaped == 0 && waits < 50; ++waits) {
      reaped = waitpid(pid_, &state, WNOHANG);
      if (reaped == 0) usleep(1000);
    }
    if (reaped <= 0) {
      kill(-pid_, SIGKILL);
      while (waitpid(pid_, &state, 0) < 0 && errno == EINTR) {
      }
    }
    pid_ = -1;
    if (WIFSIGNALED(state))
      cause_ = "signal " + std::to_string(WTERMSIG(state)) + " (" + strsignal(WTERMSIG(state)) + ")";
    else cause_ = "exit status " + std::to_string(WEXITSTATUS(state));
  }
  if (channel_.fd() >= 0) close(channel_.fd());
  channel_ = Channel();
}

}  // namespace seqtile::autotune
