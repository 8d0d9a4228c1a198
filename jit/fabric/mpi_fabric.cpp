// jit/fabric/mpi_fabric.cpp -- see jit/mpi_fabric.h.
// SPDX-License-Identifier: Apache-2.0
//
// Rank 0 makes the memory that the ranks share. Processes that mpirun has started cannot inherit it: they open it by
// what the system calls rank 0's descriptor, so it still has no name that could be left behind.
#include "jit/mpi_fabric.h"

#include <mpi.h>

#include <array>
#include <cstdlib>
#include <string>

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include "jit/base/channel_block.h"
#include "jit/error.h"

namespace seqtile {
namespace {

void start_mpi() {
  int is_started = 0;
  MPI_Initialized(&is_started);
  if (is_started) return;
  MPI_Init(nullptr, nullptr);
  std::atexit([] {
    int is_ended = 0;
    MPI_Finalized(&is_ended);
    if (!is_ended) MPI_Finalize();
  });
}

struct Ranks {
  int rank = 0, size = 0;
  int on_this_machine = 0;
};

Ranks count_ranks() {
  Ranks ranks;
  MPI_Comm_rank(MPI_COMM_WORLD, &ranks.rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks.size);
  MPI_Comm machine = MPI_COMM_NULL;
  MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &machine);
  MPI_Comm_size(machine, &ranks.on_this_machine);
  MPI_Comm_free(&machine);
  return ranks;
}

bool is_true_everywhere(bool mine) {
  int value = mine, all = 0;
  MPI_Allreduce(&value, &all, 1, MPI_INT, MPI_LAND, MPI_COMM_WORLD);
  return all != 0;
}

/// A descriptor that is closed with the object.
struct Descriptor {
  int fd = -1;
  Descriptor() = default;
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (fd >= 0) close(fd);
  }
};

}  // namespace

std::unique_ptr<Fabric> join_mpi_fabric(int num_threads, std::chrono::nanoseconds timeout) {
  start_mpi();
  const Ranks ranks = count_ranks();
  if (ranks.size > channel::kMaxRanks)
    throw Error(ErrorCode::invalid_argument, fmt::format("MPI fabric: {} ranks, at most {} make a fabric; start fewer",
                                                         ranks.size, channel::kMaxRanks));
  if (!is_true_everywhere(ranks.on_this_machine == ranks.size))
    throw Error(ErrorCode::unsupported,
                fmt::format("MPI fabric: {} of {} ranks are on rank {}'s machine; all need to be on one",
                            ranks.on_this_machine, ranks.size, ranks.rank));
  Descriptor world;
  std::array<int, 2> shared{-1, -1};  // process and descriptor of rank 0
  if (ranks.rank == 0) {
    try {
      world.fd = make_process_world(ranks.size);
    } catch (const Error&) {  // all ranks hear of it below
    }
    shared = {getpid(), world.fd};
  }
  MPI_Bcast(shared.data(), 2, MPI_INT, 0, MPI_COMM_WORLD);
  if (shared[1] < 0) throw Error(ErrorCode::out_of_resources, "MPI fabric: rank 0 has no shared memory for the ranks");
  if (ranks.rank != 0) world.fd = open(fmt::format("/proc/{}/fd/{}", shared[0], shared[1]).c_str(), O_RDWR | O_CLOEXEC);
  if (!is_true_everywhere(world.fd >= 0))
    throw Error(ErrorCode::unsupported,
                "MPI fabric: a rank may not open the memory of rank 0; run all as one user, in one container");
  return join_process_fabric(world.fd, ranks.rank, num_threads, timeout);
}

}  // namespace seqtile
