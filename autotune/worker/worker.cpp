// autotune/worker/worker.cpp -- the main function of a worker process; see seqtile/tuner.h.
// SPDX-License-Identifier: Apache-2.0
#include <poll.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "seqtile/tuner.h"
#include "autotune/worker/serve.h"
#include "autotune/worker/worker_flag.h"

namespace seqtile::autotune {
namespace {

/// Ends this process when the tuner closes the connection, even while a kernel under test runs.
void watch(int fd) {
  pollfd waiting{fd, POLLRDHUP, 0};
  while (poll(&waiting, 1, -1) < 0) {
  }
  _exit(0);
}

}  // namespace

bool run_worker(int argc, char** argv, const Registry& registry, int& exit_code) {
  program_is_worker = true;
  if (argc != 4 || std::strcmp(argv[1], kWorkerFlag) != 0) return false;
  const int fd = std::atoi(argv[2]), shared = std::atoi(argv[3]);
  std::signal(SIGINT, SIG_IGN);  // the tuner alone reacts to Ctrl-C
  const rlimit no_core{0, 0};
  setrlimit(RLIMIT_CORE, &no_core);
  void* page = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, shared, 0);
  exit_code = page == MAP_FAILED ? 3 : 0;
  if (exit_code != 0) return true;
  std::thread(watch, fd).detach();
  Channel channel(fd);
  if (channel.send("{\"outcome\":\"ok\"}"))
    WorkerServer(registry, channel, static_cast<volatile int64_t*>(page)).serve();
  return true;
}

}  // namespace seqtile::autotune
