// jit/fabric/transport/mpi_fabric.cpp -- see seqtile/mpi_fabric.h.
// SPDX-License-Identifier: Apache-2.0
//
// On each node its first rank makes the memory that its ranks share. Processes that mpirun has started cannot inherit
// it: they open it by what the system calls that rank's descriptor, so it still has no name that could be left behind.
#include "seqtile/mpi_fabric.h"

#include <mpi.h>

#include <array>
#include <cstdlib>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include "jit/base/descriptor.h"
#include "jit/fabric/core/agreement.h"
#include "jit/fabric/transport/mpi_link.h"
#include "jit/fabric/transport/node_fabric.h"
#include "seqtile/abi.h"
#include "seqtile/error.h"

namespace seqtile {
namespace {

void start_mpi() {
  int is_started = 0, level = 0;
  MPI_Initialized(&is_started);
  if (is_started) return;
  MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &level);
  std::atexit([] {
    int is_ended = 0;
    MPI_Finalized(&is_ended);
    if (!is_ended) MPI_Finalize();
  });
}

bool is_true_everywhere(bool mine) {
  int value = mine, all = 0;
  MPI_Allreduce(&value, &all, 1, MPI_INT, MPI_LAND, MPI_COMM_WORLD);
  return all != 0;
}

/// A communicator of one node's ranks.
class Node {
 public:
  /// Collective. `most_ranks`: those of one machine make several nodes where they are more.
  explicit Node(int most_ranks) {
    MPI_Comm machine = MPI_COMM_NULL;
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &machine);
    int on_machine = 0;
    MPI_Comm_rank(machine, &on_machine);
    MPI_Comm_split(machine, most_ranks > 0 ? on_machine / most_ranks : 0, 0, &comm_);
    MPI_Comm_free(&machine);
    MPI_Comm_rank(comm_, &rank_);
    MPI_Comm_size(comm_, &size_);
  }
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;
  ~Node() { MPI_Comm_free(&comm_); }

  MPI_Comm comm() const { return comm_; }
  int rank() const { return rank_; }
  int size() const { return size_; }
  /// Collective over all ranks: of each the first rank of its node.
  std::vector<int> first_ranks(int rank, int num_ranks) const {
    int first = rank;
    MPI_Bcast(&first, 1, MPI_INT, 0, comm_);
    std::vector<int> all(static_cast<size_t>(num_ranks));
    MPI_Allgather(&first, 1, MPI_INT, all.data(), 1, MPI_INT, MPI_COMM_WORLD);
    return all;
  }

 private:
  MPI_Comm comm_ = MPI_COMM_NULL;
  int rank_ = 0, size_ = 0;
};

void check_threads() {
  int level = 0;
  MPI_Query_thread(&level);
  if (!is_true_everywhere(level == MPI_THREAD_MULTIPLE))
    throw Error(ErrorCode::unsupported,
                "MPI fabric: ranks on several nodes need an MPI that threads may call at any time; start it with "
                "MPI_Init_thread and MPI_THREAD_MULTIPLE, or let this library start it");
}

/// The memory of a node's ranks. Errors, on all ranks alike: out_of_resources, unsupported.
Descriptor share_world(const Node& node) {
  Descriptor world;
  std::array<int, 2> shared{-1, -1};  // process and descriptor of the node's first rank
  if (node.rank() == 0) {
    fabric::problem_in([&] { world = Descriptor(make_process_world(node.size())); });  // all ranks hear of it below
    shared = {getpid(), world.get()};
  }
  MPI_Bcast(shared.data(), 2, MPI_INT, 0, node.comm());
  if (!is_true_everywhere(shared[1] >= 0))
    throw Error(ErrorCode::out_of_resources, "MPI fabric: the first rank of a node has no shared memory for its ranks");
  if (node.rank() != 0)
    world = Descriptor(open(fmt::format("/proc/{}/fd/{}", shared[0], shared[1]).c_str(), O_RDWR | O_CLOEXEC));
  if (!is_true_everywhere(world.get() >= 0))
    throw Error(ErrorCode::unsupported,
                "MPI fabric: a rank may not open the memory of its node's first rank; run all as one user, in one "
                "container");
  return world;
}

}  // namespace

std::unique_ptr<Fabric> join_mpi_fabric(int num_threads, std::chrono::nanoseconds timeout, int ranks_per_node) {
  start_mpi();
  int rank = 0, num_ranks = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &num_ranks);
  if (num_ranks > channel::kMaxRanks)
    throw Error(ErrorCode::invalid_argument, fmt::format("MPI fabric: {} ranks, at most {} make a fabric; start fewer",
                                                         num_ranks, channel::kMaxRanks));
  const Node node(ranks_per_node);
  const bool is_one_node = is_true_everywhere(node.size() == num_ranks);
  if (!is_one_node) check_threads();
  const Descriptor world = share_world(node);
  std::unique_ptr<Fabric> local;
  const auto problem =
      fabric::problem_in([&] { local = join_process_fabric(world.get(), node.rank(), num_threads, timeout); });
  const bool have_all_joined = is_true_everywhere(!problem);
  if (problem) throw *problem;
  if (!have_all_joined) throw Error(ErrorCode::aborted, "MPI fabric: a rank could not join the others; it says why");
  if (is_one_node) return local;
  return fabric::make_node_fabric(std::move(local), fabric::make_mpi_link(), rank, node.first_ranks(rank, num_ranks));
}

extern "C" {
extern const JoinMpiFabric seqtile_join_mpi_fabric;  // kMpiJoinSymbol
const JoinMpiFabric seqtile_join_mpi_fabric = &join_mpi_fabric;
}

}  // namespace seqtile
