// autotune/worker/rank_group.cpp -- see rank_group.h.
// SPDX-License-Identifier: Apache-2.0
#include "autotune/worker/rank_group.h"

#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <optional>
#include <thread>
#include <vector>

#include <fmt/format.h>

#include "jit/base/assert.h"
#include "jit/fabric/core/agreement.h"
#include "seqtile/error.h"

namespace seqtile::autotune {
namespace {

constexpr std::chrono::seconds kJoinLimit{10};

using Problems = std::vector<std::optional<Error>>;

/// Zeroed pages that forked processes share.
void* map_shared(size_t bytes) {
  void* pages = mmap(nullptr, std::max<size_t>(bytes, 1), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (pages == MAP_FAILED)
    throw Error(ErrorCode::out_of_resources,
                fmt::format("no {} bytes of memory that ranks share: {}", bytes, std::strerror(errno)));
  return pages;
}

/// Throws the first error that is not `aborted`, else the first one: a rank that failed knows more than its peers.
void throw_first(const Problems& problems) {
  const std::optional<Error>* first = nullptr;
  for (const auto& problem : problems)
    if (problem && (!first || ((*first)->code() == ErrorCode::aborted && problem->code() != ErrorCode::aborted)))
      first = &problem;
  if (first) throw **first;
}

Problems run_threads(int world_size, int threads, const std::function<void(Fabric&)>& work) {
  auto fabrics = make_thread_fabric(world_size, threads);
  Problems problems(fabrics.size());
  std::vector<std::jthread> ranks;
  for (size_t rank = 0; rank < problems.size(); ++rank)
    ranks.emplace_back([&, rank, fabric = std::move(fabrics[rank])]() mutable {
      problems[rank] = fabric::problem_in([&] { work(*fabric); });
      fabric.reset();  // ends the wait of peers for this rank
    });
  ranks.clear();
  return problems;
}

/// The result of a forked rank, in memory that it shares with the worker.
struct Report {
  bool is_done;
  ErrorCode code;
  char text[1000];
};

[[noreturn]] void run_child(int world, int rank, int threads, const std::function<void(Fabric&)>& work,
                            Report& report) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);  // a rank must not outlive the worker
  const auto problem =
      fabric::problem_in([&] { work(*join_process_fabric(world, rank, threads, std::chrono::seconds(kJoinLimit))); });
  if (problem) {
    report.code = problem->code();
    std::strncpy(report.text, problem->what(), sizeof report.text - 1);
  }
  report.is_done = true;
  _exit(0);
}

/// Waits until the child has ended; nullopt if it succeeded.
std::optional<Error> outcome_of(pid_t child, size_t rank, const Report& report) {
  int state = 0;
  while (waitpid(child, &state, 0) < 0 && errno == EINTR) {
  }
  if (WIFSIGNALED(state))
    return Error(ErrorCode::driver,
                 fmt::format("rank {} ended by signal {} ({})", rank, WTERMSIG(state), strsignal(WTERMSIG(state))));
  if (!report.is_done)
    return Error(ErrorCode::driver, fmt::format("rank {} ended with exit status {}", rank, WEXITSTATUS(state)));
  if (report.text[0]) return Error(report.code, report.text);
  return std::nullopt;
}

Problems run_processes(int world_size, int threads, const std::function<void(Fabric&)>& work) {
  const auto count = static_cast<size_t>(world_size);
  auto* reports = static_cast<Report*>(map_shared(count * sizeof(Report)));
  const int world = make_process_world(world_size);
  std::vector<pid_t> children;
  for (size_t rank = 0; rank < count; ++rank) {
    const pid_t child = fork();
    if (child == 0) run_child(world, static_cast<int>(rank), threads, work, reports[rank]);
    if (child < 0) break;
    children.push_back(child);
  }
  const int failed = errno;
  close(world);
  const bool is_whole = children.size() == count;
  Problems problems(count);
  for (size_t rank = 0; rank < children.size(); ++rank) {
    if (!is_whole) kill(children[rank], SIGKILL);  // it would wait for ranks that were not started
    problems[rank] = outcome_of(children[rank], rank, reports[rank]);
  }
  munmap(reports, count * sizeof(Report));
  if (!is_whole)
    throw Error(ErrorCode::out_of_resources,
                fmt::format("no process for rank {}: {}", children.size(), std::strerror(failed)));
  return problems;
}

}  // namespace

bool has_rank_group(const std::string& fabric) { return fabric == "threads" || fabric == "processes"; }

void run_rank_group(const std::string& fabric, int world_size, int threads, const std::function<void(Fabric&)>& work) {
  SEQTILE_ASSERT(has_rank_group(fabric));
  throw_first(fabric == "threads" ? run_threads(world_size, threads, work) : run_processes(world_size, threads, work));
}

SharedNumbers::SharedNumbers(size_t count) : values_(static_cast<double*>(map_shared(count * sizeof(double))), count) {}

SharedNumbers::~SharedNumbers() { munmap(values_.data(), std::max<size_t>(values_.size_bytes(), 1)); }

}  // namespace seqtile::autotune
