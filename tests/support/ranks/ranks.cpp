// tests/support/ranks/ranks.cpp -- see ranks.h.
// SPDX-License-Identifier: Apache-2.0
#include "tests/support/ranks/ranks.h"

#include <cstdio>
#include <exception>
#include <sys/mman.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include <fmt/format.h>

#include "seqtile/error.h"
#include "tests/support/ranks/node_ranks.h"

namespace seqtile::testing {
namespace {

constexpr unsigned kMostSeconds = 600;

std::string error_of(const std::function<void()>& work) {
  try {
    work();
    return "";
  } catch (const std::exception& error) {
    return error.what();
  }
}

}  // namespace

std::vector<std::string> on_threads(std::vector<std::unique_ptr<Fabric>> fabrics,
                                    const std::function<void(Fabric&)>& work) {
  std::vector<std::string> errors(fabrics.size());
  std::vector<std::jthread> threads;
  for (size_t rank = 0; rank < fabrics.size(); ++rank)
    threads.emplace_back([&errors, &work, rank, fabric = std::move(fabrics[rank])]() mutable {
      errors[rank] = error_of([&] { work(*fabric); });
      fabric.reset();  // releases the peers that still wait for this rank
    });
  threads.clear();
  return errors;
}

std::vector<std::string> on_processes(int world_size, const std::function<void(int world, int rank)>& work) {
  constexpr size_t kBytes = 1024;
  const auto count = static_cast<size_t>(world_size);
  auto* texts =
      static_cast<char*>(mmap(nullptr, count * kBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  if (texts == MAP_FAILED) throw Error(ErrorCode::out_of_resources, "no shared memory for a test");
  const int world = make_process_world(world_size);
  std::vector<pid_t> children;
  for (size_t rank = 0; rank < count; ++rank) {
    children.push_back(fork());
    if (children.back() != 0) continue;
    alarm(kMostSeconds);
    const std::string error = error_of([&] { work(world, static_cast<int>(rank)); });
    std::snprintf(texts + rank * kBytes, kBytes, "%s", error.c_str());
    _exit(0);
  }
  close(world);
  std::vector<std::string> errors;
  for (size_t rank = 0; rank < count; ++rank) {
    int status = 0;
    waitpid(children[rank], &status, 0);
    errors.push_back(status == 0 ? texts + rank * kBytes : fmt::format("ended with status {:#x}", status));
  }
  munmap(texts, count * kBytes);
  return errors;
}

std::vector<std::string> on_ranks(const std::string& kind, int world_size, const std::function<void(Fabric&)>& work) {
  if (kind == "threads") return on_threads(make_thread_fabric(world_size), work);
  if (kind == "nodes") return on_threads(make_node_ranks(world_size), work);
  return on_processes(world_size, [&](int world, int rank) { work(*join_process_fabric(world, rank)); });
}

}  // namespace seqtile::testing
